"""A secure sum in one process: sites, a coordinator, and a carrier that can lose, change or hold back messages."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from blindsight.fleet.secure_sum import Coordinator, Party, Reason, Refused, RoundBook, Site, Terms, signer

PHASES = ("keys", "shares", "masked", "agreed", "revealed")
KEYS = [ed25519.Ed25519PrivateKey.generate() for _ in range(16)]


def refused(reason: Reason) -> "pytest.RaisesExc[Refused]":
    """Expects a refusal for exactly this reason."""
    return pytest.raises(Refused, check=lambda error: error.reason is reason)


def names(count: int) -> list[str]:
    return [f"site{place:02d}" for place in range(count)]


def parties(count: int) -> list[Party]:
    return [Party.of(name, key.public_key()) for name, key in zip(names(count), KEYS, strict=False)]


def terms(count: int = 4, *, round: int = 1, broadcast: bytes = b"question and model", **options: int) -> Terms:
    return Terms.of("run", round, parties(count), broadcast=broadcast, **{"length": 5, **options})


def numbers(on: Terms, seed: int = 0) -> dict[str, np.ndarray]:
    """Random numbers for each site, over the whole range."""
    draw = np.random.default_rng(seed)
    dtype = np.dtype(f"u{on.bits // 8}")
    return {party.name: draw.integers(0, 2**on.bits, on.length, dtype=dtype) for party in on.parties}


class EveryRound:
    """A record that forgets: for sites that take part in one round only."""

    def claim(self, run: str, round: int) -> None:
        """Nothing is refused."""


def make_site(on: Terms, name: str, values: np.ndarray, book: Path | None = None) -> Site:
    key = KEYS[[party.name for party in on.parties].index(name)]
    rounds = RoundBook(book) if book else EveryRound()
    return Site(on, name, sign=signer(key), rounds=rounds, contribute=lambda: values)


def make_sites(on: Terms, values: Mapping[str, np.ndarray]) -> dict[str, Site]:
    return {name: make_site(on, name, values[name]) for name in values}


@dataclasses.dataclass
class Round:
    """A round that can be driven phase by phase."""

    terms: Terms
    values: dict[str, np.ndarray]
    sites: dict[str, Site]
    coordinator: Coordinator

    @classmethod
    def of(cls, on: Terms) -> "Round":
        values = numbers(on)
        return cls(on, values, make_sites(on, values), Coordinator(on))

    def begin(self, lost: Collection[str] = ()) -> None:
        for name, site in self.sites.items():
            message = site.begin()
            if name not in lost:
                self.coordinator.receive(message)

    def step(self, lost: Collection[str] = ()) -> None:
        """Advance, let the sites answer, and deliver their answers, but not those of `lost` sites."""
        outgoing = self.coordinator.advance()
        for name, message in outgoing.items():
            if name not in lost:
                self.coordinator.receive(self.sites[name].answer(message))

    def until(self, phase: str) -> "Round":
        """Run to the point where the answers of `phase` have arrived."""
        self.begin()
        for _ in range(PHASES.index(phase)):
            self.step()
        return self

    def expected(self, survivors: Collection[str]) -> np.ndarray:
        return sum((self.values[name] for name in survivors), np.zeros_like(self.values[names(1)[0]]))


def run_round(on: Terms, lost: Mapping[str, Collection[str]] | None = None) -> tuple[np.ndarray, Round]:
    """The sum of a whole round in which sites fall silent from the phases in `lost` on."""
    silent: set[str] = set()
    a_round = Round.of(on)
    for phase in PHASES:
        silent |= set((lost or {}).get(phase, ()))
        if phase == "keys":
            a_round.begin(silent)
        else:
            a_round.step(silent)
    return a_round.coordinator.total(), a_round
