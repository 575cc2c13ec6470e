"""The demo's question: is a web address phishing? Features, task and training addresses."""

import dataclasses
import re
from typing import Any

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, CategoryField, FeatureSpec, NumberField, Response
from blindsight.data.datasets import dataset, find
from blindsight.service.made_up import make_up

__all__ = ["MODEL", "Addresses", "collect", "describe", "make_task"]

MODEL = "phishing"

_HIGHEST = {
    "length": 100,
    "host": 40,
    "path": 80,
    "dots": 4,
    "hyphens": 3,
    "digits": 6,
    "path digits": 10,
    "slashes": 6,
}
_WORDS = ("account", "admin", "bank", "confirm", "login", "pay", "secure", "signin", "update", "verify", "web", "wp-")
_ENDINGS = ("app", "br", "com", "de", "in", "info", "io", "net", "org", "ru", "uk", "xyz")
_PARTS = re.compile(r"^(?:([a-z]+)://)?([^/?#]*)(.*)$", re.IGNORECASE | re.DOTALL)
_NUMERIC = re.compile(r"^[0-9.]+(:[0-9]+)?$")


def make_task() -> Task:
    """The demo's task: one update costs epsilon 2 for the whole client, and a client may send five."""
    fields = (
        *(NumberField(name, 0, high) for name, high in _HIGHEST.items()),
        *(BooleanField(name) for name in ("https", "at", "numeric", "query", "www")),
        *(BooleanField(f'"{word}"') for word in _WORDS),
        CategoryField("ending", _ENDINGS),
    )
    return Task(
        model=MODEL,
        family="logistic",
        features=FeatureSpec(fields),
        response=Response(BooleanField("phishing")),
        unit="model",
        noise="gaussian",
        epsilon=2.0,
        delta=1e-6,
        learning_rate=0.15,
        clip=0.05,
        instances=6,
        participations=5,
    )


def describe(address: str) -> dict[str, Any]:
    """The features of an address; page/addresses.js computes the same in a browser.

    >>> [(name, value) for name, value in describe("http://login.example.com/pay?id=7").items() if value][:5]
    [('length', 33), ('host', 17), ('path', 9), ('dots', 2), ('path digits', 1)]
    """
    parts = _PARTS.match(address)
    scheme, host, path = parts.groups(default="") if parts else ("", "", "")
    host, low = host.lower(), address.lower()
    return {
        "length": len(address),
        "host": len(host),
        "path": len(path),
        "dots": host.count("."),
        "hyphens": host.count("-"),
        "digits": len(re.findall("[0-9]", host)),
        "path digits": len(re.findall("[0-9]", path)),
        "slashes": path.count("/"),
        "https": scheme.lower() == "https",
        "at": "@" in address,
        "numeric": _NUMERIC.match(host) is not None,
        "query": "?" in address,
        "www": host.startswith("www."),
        **{f'"{word}"': word in low for word in _WORDS},
        "ending": host.rpartition(".")[2],
    }


@dataclasses.dataclass(frozen=True)
class Addresses:
    """Encoded addresses held by clients, and public ones: encoded for evaluation, as text for visitors to label."""

    origin: str
    x: np.ndarray
    y: np.ndarray
    public_x: np.ndarray
    public_y: np.ndarray
    questions: list[tuple[str, bool]]


def collect(task: Task, *, count: int = 20_000, public: int = 4_000, seed: int = 0) -> Addresses:
    """Real addresses if this machine has them, otherwise synthetic ones."""
    random = np.random.default_rng(seed)
    if find(MODEL) is not None:
        columns = dataset(MODEL, matched=True).columns
        chosen = random.permutation(len(columns["url"]))[: count + public]
        labelled = [(str(columns["url"][row]), bool(columns["label"][row])) for row in chosen]
        origin = "real addresses, legitimate and phishing, of 2021"
    else:
        labelled = [make_up(random) for _ in range(count + public)]
        origin = "made-up addresses (for real ones: blindsight data get phishing)"
    x, y = task.encode([describe(text) | {"phishing": phishing} for text, phishing in labelled])
    return Addresses(origin, x[public:], y[public:], x[:public], y[:public], labelled[:public])
