"""Time of a secure sum by phase, with every site and the coordinator in one process on one core.

    python benchmarks/secure_sum.py [--out benchmarks/results/secure_sum.json]

10 sites with 1.3 million numbers each, and 100 sites with 50,000; with nobody dropped, and with as many as a round
allows dropped after sharing secrets, where the coordinator has to rebuild their masks. Best of three.
The sum is compared with the plain one. `noise_s` is the time of one site's noise, drawn beside the sum.
"""

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ed25519

from blindsight import keys
from blindsight.fleet.noise_shares import NoiseShares
from blindsight.fleet.secure_sum import Coordinator, Party, Site, Terms, signer
from blindsight.trees import BoundedSum

PHASES = ("keys", "shares", "masks", "agreement", "unmasking")


class EveryRound:
    """A record of rounds that forgets: the benchmark measures no disk."""

    def claim(self, run: str, round: int) -> None:
        """Nothing is refused."""


def timed(spent: dict[str, list[float]], name: str, call: Callable[[], Any]) -> Any:
    """What `call` returns; its seconds are added to the list of this name."""
    begin = time.perf_counter()
    result = call()
    spent.setdefault(name, []).append(time.perf_counter() - begin)
    return result


def build(count: int, length: int) -> tuple[Terms, dict[str, Site], dict[str, np.ndarray]]:
    """Terms, sites and their numbers."""
    identities = {f"site{place:03d}": ed25519.Ed25519PrivateKey.generate() for place in range(count)}
    parties = [Party.of(name, key.public_key()) for name, key in identities.items()]
    terms = Terms.of("benchmark", 1, parties, broadcast=b"model", length=length, bits=32)
    draw = np.random.default_rng(0)
    values = {name: draw.integers(0, 2**32, length, dtype=np.uint32) for name in identities}

    def make(name: str) -> Site:
        key, part = signer(identities[name]), values[name]
        return Site(terms, name, sign=key, rounds=EveryRound(), contribute=lambda: part)

    return terms, {name: make(name) for name in identities}, values


def one_round(count: int, length: int, dropped: int) -> dict[str, Any]:
    """Seconds by phase of a round in which `dropped` sites fall silent after sharing their secrets."""
    terms, sites, values = build(count, length)
    at_sites: dict[str, list[float]] = {}
    at_coordinator: dict[str, list[float]] = {}
    coordinator = Coordinator(terms)
    for site in sites.values():
        message = timed(at_sites, "keys", site.begin)
        timed(at_coordinator, "keys", lambda message=message: coordinator.receive(message))
    gone = set(list(sites)[:dropped])
    sent = 0
    for phase in PHASES[1:]:
        outgoing = timed(at_coordinator, phase, coordinator.advance)
        for name, message in outgoing.items():
            if phase == "shares" or name not in gone:
                answer = timed(at_sites, phase, lambda name=name, message=message: sites[name].answer(message))
                timed(at_coordinator, phase, lambda answer=answer: coordinator.receive(answer))
                sent += len(answer) + len(message)
    total = timed(at_coordinator, "unmasking", coordinator.total)
    left = [values[name] for name in coordinator.survivors]
    return {
        "sites": count,
        "numbers": length,
        "dropped": dropped,
        "exact": bool((total == np.sum(left, axis=0, dtype=np.uint32)).all()),
        "at_one_site_s": {phase: round(sum(spent) / len(spent), 5) for phase, spent in at_sites.items()},
        "at_coordinator_s": {phase: round(sum(spent), 5) for phase, spent in at_coordinator.items()},
        "one_site_s": round(sum(sum(spent) / len(spent) for spent in at_sites.values()), 4),
        "coordinator_s": round(sum(map(sum, at_coordinator.values())), 4),
        "all_on_one_core_s": round(sum(map(sum, [*at_sites.values(), *at_coordinator.values()])), 4),
        "sent_mb": round(sent / 1e6, 1),
    }


def noise(length: int) -> float:
    """Seconds in which one site adds its share of the noise."""
    plan = NoiseShares(noise_multiplier=1.0, sites=10, fewest=7, colluding=0, clients=1000)
    part = BoundedSum(np.zeros(length, np.int64), 1.0, 1.0, grid=plan.step(1.0))
    begin = time.perf_counter()
    plan.contribution(part, place=1, key=keys.root())
    return time.perf_counter() - begin


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out: Path | None = parser.parse_args().out
    one_round(4, 1000, 1)  # imports and caches
    rounds: list[dict[str, Any]] = []
    for count, length in ((10, 1_300_000), (100, 50_000)):
        for dropped in (0, (count - 1) // 3):
            tries = [one_round(count, length, dropped) for _ in range(3)]
            rounds.append(min(tries, key=lambda one: one["all_on_one_core_s"]))
    result = {
        "machine": f"{platform.machine()}, one core",
        "rounds": rounds,
        "noise_s": {str(length): round(min(noise(length) for _ in range(2)), 3) for length in (50_000, 1_300_000)},
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if out:
        out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
