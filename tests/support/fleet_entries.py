"""A fleet as an entry to a computation about private clients: what a site says to others, and what its officer reads.

One site has the private table, two have public ones. Left out is what is drawn anew each time: keys, signatures, masked
numbers, of which only the size counts. That a site is still at work is told by the clock.
"""

import contextlib
import itertools
import secrets
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from fleets import fleet_in_process
from leaving import command, stop_clocks

from blindsight.fleet import wire
from blindsight.fleet.carriers.in_process import InProcess
from blindsight.fleet.noise_shares import NoisedSum, NoiseShares
from blindsight.fleet.roll_call import Presence
from blindsight.fleet.secure_sum.messages import Message
from blindsight.jobs import on_fleet
from blindsight.mechanisms.release import Release

__all__ = ["asked_of_a_fleet"]

_SITES = {"north": 40, "people": 28, "south": 40}
_OFFICER = ("site review {site} --all --json", "site log {site} --json")
_CLOCKS = "fleet.opening fleet.summing fleet.roll_call fleet.site.book fleet.site.diary jobs.site"
_DATA = """population = "{table}"
options = {{ client = "who" }}
types = {{ region = "category:north,south", label = "category:no,yes" }}"""


def asked_of_a_fleet(*lines: str) -> list[Any]:
    """What commands that name a fleet leave, what the site `people` tells others, and what its officer reads then."""
    place, said = Path.cwd().parent / "sites", list[Any]()
    tables = {name: Path.cwd() / ("people.csv" if name == "people" else "public.csv") for name in _SITES}
    data = {name: (clients, _DATA.format(table=tables[name])) for name, clients in _SITES.items()}
    try:
        with pytest.MonkeyPatch.context() as patch:
            _without_chance(patch, said)
            with fleet_in_process(place, data) as fleet:
                patch.setattr(on_fleet, "fleet_at", lambda *given, **options: fleet)
                found = [command(*line.split()) for line in lines]
                status = Presence.of_answer("people", fleet.lines.roll_call()["people"])
            officer = [command(*line.format(site=place / "people/SITE.toml").split()) for line in _OFFICER]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert any(one[0] == "part" for one in said), [found, said, officer]
    return [*found, *officer, {"said": said, "status": status.to_dict()}]


def _without_chance(patch: pytest.MonkeyPatch, said: list[Any]) -> None:
    """What `leaving.blind` does, for a fleet: clocks stand still, and a release is noise alone, once it is unmasked."""
    stop_clocks(patch, _CLOCKS)
    numbers = itertools.count(1)
    patch.setattr(secrets, "randbits", lambda bits: next(numbers))
    patch.setattr(NoiseShares, "release", _noise_alone)
    patch.setattr("blindsight.cli.requests.steps_bar", _nothing_shown)  # whom one waits for is told by the clock, too
    send = InProcess.send

    def heard(self: InProcess, receiver: str, data: bytes) -> None:
        if self.name == "people" and (told := _told(receiver, data)) not in [None, *said]:
            said.append(told)
        send(self, receiver, data)

    patch.setattr(InProcess, "send", heard)


@contextlib.contextmanager
def _nothing_shown(*given: Any, **options: Any) -> Generator[Callable[..., None]]:
    yield lambda *said: None


def _told(receiver: str, data: bytes) -> Any:
    """What a message says; nothing if it only says that the site is still at work."""
    head, blobs = wire.decode(data)
    if head["kind"] == "working":
        return None
    parts = [Message.decoded(blob) for blob in blobs]
    sizes = [[one.kind.name, one.sender, [len(field) for field in one.fields]] for one in parts]
    return [head["kind"], receiver, dict(head), sizes]


def _noise_alone(self: NoiseShares, total: Any, *, key: Any, begun: Any = None) -> Release[Any]:
    """What is released of a sum that is swamped by noise, and how much noise the sites say is in it."""
    del key, begun
    assert isinstance(total, NoisedSum)
    event, (_, survivors) = self.event(total), total.unmasked()
    leaves, shapes = jax.tree.flatten(total.like)
    dice = np.random.default_rng(len(leaves))
    noise = [(0.6 * total.l2_bound * dice.random(leaf.shape)).astype(np.float32) for leaf in leaves]
    return Release(jax.tree.unflatten(shapes, noise), event, survivors * self.step(total.l2_bound))
