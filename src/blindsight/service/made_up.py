"""Synthetic web addresses, for demos on machines without the real ones."""

import numpy as np

__all__ = ["make_up"]

_NAMES = (
    *("alder", "birch", "cinder", "dapple", "ember", "fennel", "gannet", "harbour", "indigo", "juniper", "kestrel"),
    *("lumen", "maple", "nettle", "orchard", "pebble", "quarry", "rowan", "saffron", "thistle", "umber", "yarrow"),
)
_TRADES = ("bakery", "bank", "books", "cinema", "clinic", "college", "museum", "news", "pay", "post", "shop", "travel")
_SECTIONS = ("about", "articles", "catalogue", "events", "help", "history", "library", "news", "products", "team")
_LURES = ("account", "billing", "confirm", "login", "restore", "secure", "signin", "support", "update", "verify")
_BAITED = ("bank", "pay", "post", "shop")
_ENDINGS = ("com", "com", "org", "net", "de", "uk", "io", "in")
_CHEAP = ("xyz", "info", "app", "ru", "br", "com")
_FREE = ("freepages", "quickweb", "sitehost", "webhop")


def make_up(random: np.random.Generator) -> tuple[str, bool]:
    """An address and whether it is phishing; a few look like the other class."""
    phishing = bool(random.random() < 0.3)
    disguised = bool(random.random() < 0.04)
    return (_lure(random) if phishing != disguised else _page(random)), phishing


def _page(random: np.random.Generator) -> str:
    name = f"{_one(random, _NAMES)}{_one(random, ('', '', '-'))}{_one(random, _TRADES)}"
    prefix = _one(random, ("www.", "www.", "", "docs.", "en."))
    path = "/".join(_several(random, (*_SECTIONS, *_NAMES)))
    rest = _one(random, ("", "", "/", ".html", f"?page={random.integers(1, 9)}"))
    return f"{_one(random, ('https', 'https', 'http'))}://{prefix}{name}.{_one(random, _ENDINGS)}/{path}{rest}"


def _lure(random: np.random.Generator) -> str:
    name, trade, bait = _one(random, _NAMES), _one(random, _BAITED), _one(random, _LURES)
    number, ending = int(random.integers(10, 99_999)), _one(random, _CHEAP)
    hosts = (
        f"{bait}-{name}{trade}.{ending}",
        f"{name}-{trade}-{bait}{number % 100}.{_one(random, _FREE)}.{ending}",
        f"{name}{trade}.com.{bait}-id{number}.{ending}",
        f"203.0.113.{number % 254}",
    )
    path = "/".join(_several(random, (*_LURES, "wp-content", "index.php", "web")))
    rest = _one(random, ("", "/", f"?id={number}", f"/index.php?session={number}{number}"))
    return f"{_one(random, ('http', 'https'))}://{_one(random, hosts)}/{path}{rest}"


def _one(random: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(random.integers(len(choices)))]


def _several(random: np.random.Generator, choices: tuple[str, ...]) -> list[str]:
    return [_one(random, choices) for _ in range(int(random.integers(1, 4)))]
