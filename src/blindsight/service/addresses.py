"""Web addresses for the demo: described by numbers, told apart by a private model, and made up where none are at hand."""

import dataclasses
import re
from typing import Any

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.data.datasets import dataset, find
from blindsight.models.specs import Boolean, Category, Features, Number, Response

__all__ = ["Addresses", "collect", "describe", "make_up", "task"]

MODEL = "phishing"
WORDS = ("account", "admin", "bank", "confirm", "login", "pay", "secure", "signin", "update", "verify", "web", "wp-")
ENDINGS = ("app", "br", "com", "de", "in", "info", "io", "net", "org", "ru", "uk", "xyz")

_PARTS = re.compile(r"^([a-z]+)://([^/?#]*)(.*)$", re.IGNORECASE | re.DOTALL)
_NUMERIC = re.compile(r"^[0-9.]+(:[0-9]+)?$")
_PUBLIC = 4000  # addresses kept for measuring the loss


def task(*, participations: int = 5) -> Task:
    """The model of the demo: a client's whole update costs epsilon 2, whatever its addresses are."""
    numbers = {"length": 100, "host": 40, "path": 80, "dots": 4, "hyphens": 3, "digits": 6, "path digits": 10, "slashes": 6}
    fields = [
        *(Number(name, 0, high) for name, high in numbers.items()),
        *(Boolean(name) for name in ("https", "at", "numeric", "query", "www")),
        *(Boolean(f'"{word}"') for word in WORDS),
        Category("ending", ENDINGS),
    ]
    return Task(
        model=MODEL,
        family="logistic",
        features=Features(tuple(fields)),
        response=Response(Boolean("phishing")),
        unit="model",
        noise="gaussian",
        epsilon=2.0,
        delta=1e-6,
        learning_rate=0.1,
        clip=0.07,
        instances=10,
        participations=participations,
    )


def describe(address: str) -> dict[str, Any]:
    """What the model looks at. page/addresses.js does the same in the browser.

    >>> [(name, value) for name, value in describe("http://login.example.com/pay?id=7").items() if value][:5]
    [('length', 33), ('host', 17), ('path', 9), ('dots', 2), ('path digits', 1)]
    """
    parts = _PARTS.match(address)
    scheme, host, path = parts.groups() if parts else ("", *_split(address))
    host, low = host.lower(), address.lower()
    return {
        "length": len(address),
        "host": len(host),
        "path": len(path),
        "dots": host.count("."),
        "hyphens": host.count("-"),
        "digits": _digits(host),
        "path digits": _digits(path),
        "slashes": path.count("/"),
        "https": scheme.lower() == "https",
        "at": "@" in address,
        "numeric": _NUMERIC.match(host) is not None,
        "query": "?" in address,
        "www": host.startswith("www."),
        **{f'"{word}"': word in low for word in WORDS},
        "ending": host.rpartition(".")[2],
    }


def _split(address: str) -> tuple[str, str]:
    end = re.search(r"[/?#]", address)
    return (address[: end.start()], address[end.start() :]) if end else (address, "")


def _digits(text: str) -> int:
    return sum("0" <= letter <= "9" for letter in text)


@dataclasses.dataclass(frozen=True)
class Addresses:
    """Encoded addresses: those that clients hold, and public ones to measure the loss on."""

    origin: str
    x: np.ndarray
    y: np.ndarray
    public_x: np.ndarray
    public_y: np.ndarray


def collect(asked: Task, *, count: int = 24_000, seed: int = 0) -> Addresses:
    """Real addresses if this machine has them, else made-up ones; the first few thousand are public."""
    random = np.random.default_rng(seed)
    if find(MODEL) is not None:
        columns = dataset(MODEL, matched=True).columns
        chosen = random.permutation(len(columns["url"]))[:count]
        texts, labels = columns["url"][chosen].tolist(), columns["label"][chosen].tolist()
        origin = "real web addresses, legitimate and phishing (PhishTank and one crawl, 2021)"
    else:
        made = [make_up(random) for _ in range(count)]
        texts, labels = [text for text, _ in made], [label for _, label in made]
        origin = "made-up web addresses: the real ones are not on this machine (blindsight data get phishing)"
    rows = [describe(text) | {"phishing": bool(label)} for text, label in zip(texts, labels, strict=True)]
    x, y = asked.encode(rows)
    public = min(_PUBLIC, count // 4)
    return Addresses(origin, x[public:], y[public:], x[:public], y[:public])


# --- addresses that exist nowhere

NAMES = ("alder", "birch", "cinder", "dapple", "ember", "fennel", "gannet", "harbour", "indigo", "juniper", "kestrel", "lumen")
NAMES += ("maple", "nettle", "orchard", "pebble", "quarry", "rowan", "saffron", "thistle", "umber", "velvet", "willow", "yarrow")
TRADES = ("bakery", "bank", "books", "cinema", "clinic", "college", "museum", "news", "pay", "post", "shop", "travel")
SECTIONS = ("about", "articles", "catalogue", "events", "help", "history", "library", "news", "products", "stories", "team")
LURES = ("account", "billing", "confirm", "login", "restore", "secure", "signin", "support", "unlock", "update", "verify")
HOSTS = ("freepages", "quickweb", "sitehost", "webhop")


def make_up(random: np.random.Generator) -> tuple[str, bool]:
    """An address that nobody owns, and whether it was made up as phishing; some could be either."""
    phishing = bool(random.random() < 0.4)
    disguised = random.random() < (0.12 if phishing else 0.08)  # bait without a lure, and honest pages that look like one
    return (_lure(random) if phishing != disguised else _page(random)), phishing


def _page(random: np.random.Generator) -> str:
    name, trade = _one(random, NAMES), _one(random, TRADES)
    host = f"{name}{_one(random, ('', '', '-'))}{trade}.{_one(random, ('com', 'com', 'org', 'net', 'de', 'uk', 'io', 'in'))}"
    prefix = _one(random, ("www.", "www.", "", "docs.", "en."))
    path = "/".join(_several(random, (*SECTIONS, *NAMES), 1, 4))
    ending = _one(random, ("", "", "/", ".html", f"?page={random.integers(1, 9)}"))
    return f"{_one(random, ('https', 'https', 'http'))}://{prefix}{host}/{path}{ending}"


def _lure(random: np.random.Generator) -> str:
    name, trade, number = _one(random, NAMES), _one(random, ("bank", "pay", "post", "shop")), random.integers(10, 99_999)
    host = _one(
        random,
        (
            f"{_one(random, LURES)}-{name}{trade}.{_one(random, ('xyz', 'info', 'app', 'ru', 'br', 'com'))}",
            f"{name}-{trade}-{_one(random, LURES)}{number % 100}.{_one(random, HOSTS)}.{_one(random, ('app', 'xyz', 'com'))}",
            f"{name}{trade}.com.{_one(random, LURES)}-id{number}.{_one(random, ('xyz', 'info', 'ru', 'in'))}",
            f"203.0.113.{number % 254}",
        ),
    )
    path = "/".join(_several(random, (*LURES, "wp-content", "index.php", "web", "user"), 1, 4))
    ending = _one(random, ("", "/", f"?id={number}", f"/index.php?session={number}{number}"))
    return f"{_one(random, ('http', 'https'))}://{host}/{path}{ending}"


def _one(random: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(random.integers(len(choices)))]


def _several(random: np.random.Generator, choices: tuple[str, ...], least: int, most: int) -> list[str]:
    return [_one(random, choices) for _ in range(int(random.integers(least, most)))]
