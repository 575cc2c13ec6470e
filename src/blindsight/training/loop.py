"""A run between rounds: drawn, paid for, advanced by one round or by a block, saved and restored."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from blindsight import checkpoints
from blindsight.accounting import accountants
from blindsight.accounting.assumptions import KEPT_SECRET
from blindsight.accounting.events import Composed, Event, to_json
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend, Cohort
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.release import marked
from blindsight.participation import Unproven
from blindsight.privacy import Privacy
from blindsight.runs import Run
from blindsight.training.blocks import Block, Blocks, blocks_for, check_release
from blindsight.training.settings import RunTerms
from blindsight.version import __version__

__all__ = ["Loop", "machine"]

_SECRET = "secret"  # subfolder of the run
_AHEAD = 2  # blocks


def machine() -> str:
    """Devices and versions on which a reproducible run repeats bit for bit; others round sums differently."""
    devices, hosts = jax.local_devices(), jax.process_count()
    several = f"{hosts} hosts of " if hosts > 1 else ""
    return f"{several}{len(devices)} {devices[0].device_kind}, jax {jax.__version__}, blindsight {__version__}"


class _Drawn(NamedTuple):
    """A block that is not computed yet, the number of rounds after it, and how often every client has taken part."""

    block: Block
    end: int
    participated: np.ndarray


class Loop:
    """The state of a run between rounds: saved, restored and advanced; at most `together` rounds at once."""

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        privacy: Privacy,
        population: Payers,
        delta: float,
        key: Key,
        run: Run,
        ledger: Ledger,
        terms: RunTerms,
        together: int = 1,
    ) -> None:
        self.terms, self.before = terms, tuple(terms.before)
        secret = (KEPT_SECRET,) if isinstance(privacy.sampling, Unproven) else ()
        self.assumptions = (*terms.assumptions, *secret)
        self.algorithm, self.backend, self.privacy = algorithm, backend, privacy
        self.population, self.delta, self.run, self.ledger = population, delta, run, ledger
        self.sampling = privacy.sampling
        self.state = algorithm.init()
        self.key = key.bound_to(self._facts)
        self.participated = np.zeros(privacy.population if isinstance(self.sampling, Unproven) else 0, np.int32)
        self.round = 0
        self.rows: list[dict[str, Any]] = []
        self.measured: dict[str, float] = {}
        self.clients_per_s = 0.0
        self.saved_at = self.flushed_at = time.monotonic()
        self.saved_round = 0
        self.writer = checkpoints.Writer()
        self.blocks = blocks_for(algorithm, backend, self.sampling, together)
        self._host = ThreadPoolExecutor(max_workers=1)
        self._ahead: Future[list[_Drawn]] | None = None
        self.head = ""
        self.run_id = f"{run.path.name} {run.read('run.json')['id']} on {machine()}"
        if self.blocks is not None:  # in another program sums may be rounded differently
            self.run_id += ", rounds together"
        if key.is_reproducible:  # another key draws different noise, which must be paid for again
            self.run_id += f", key {self.key.derive('name').secret.hex()[:16]}"

    def _facts(self) -> dict[str, Any]:
        """Every visible input of a round's sum; the number of rounds is none and may grow. State is the initial one."""
        return {
            "data": getattr(self.backend, "fingerprint", None),  # only a simulation has one
            "population": names_of(self.population),
            "state": [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)],
            "event": to_json(self.algorithm.event),
            "privacy": dataclasses.replace(self.privacy, rounds=1),
            "settings": self.run.settings(less=("privacy", "rounds")),
            "arm": self.terms.arm,
        }

    @property
    def event(self) -> Event:
        """The event of one round on its cohort."""
        return marked(self.algorithm.event, self.key)

    def reserve(self, rounds: int) -> int:
        """Pay for the next `rounds`, or as many as the budget allows; returns the end of the paid range (exclusive)."""
        if isinstance(self.sampling, Unproven):
            rounds = self.privacy.rounds  # the limit per client covers the whole run, so it is paid for as a whole
        first, last = self.round, min(self.privacy.rounds, (self.round // rounds + 1) * rounds)
        if self.key.is_reproducible and (paid := self._paid_until(first)):
            return paid
        while last > first:
            try:
                entry = self.ledger.record(
                    self.sampling.event(self.event, last - first),
                    population=self.population,
                    unit=self.privacy.unit,
                    relation=self.sampling.relation,
                    run=self.run_id,
                    note=f"rounds {first} to {last}",
                    split=self.terms.split,
                    arm=self.terms.arm,
                )
                self.head = entry.hash
                return last
            except BudgetExceeded:
                if isinstance(self.sampling, Unproven):
                    raise
                last = first + (last - first) // 2
        return first

    def _paid_until(self, first: int) -> int | None:
        """The end of the block in which this run has already paid for round `first`."""
        for entry in self.ledger.entries(names_of(self.population)[-1]):
            if entry.kind == "release" and entry.run == self.run_id:
                begin, end = (int(word) for word in entry.note.removeprefix("rounds ").split(" to "))
                paid = to_json(self.sampling.event(self.event, end - begin))
                if begin <= first < end and entry.event == paid:
                    self.head = entry.hash
                    return end
        return None

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """While rounds are computed; leaving it waits until everything is on disk."""
        with self.writer, self._host:
            yield

    def advance(self, last: int, stop: Callable[[int], int]) -> None:
        """One round, or several together: up to `last`, as far as is paid for, or `stop(round)` where that is less."""
        if self.blocks is None:
            self._step()
        else:
            self._block(self.blocks, last, stop)

    def _step(self) -> None:
        """One round."""
        started = time.monotonic()
        clients, cohort = self._cohort(self.round, self.participated)
        before = self.state
        self.state, event = self.algorithm.step(before, cohort, key=self._noise(self.round))
        # on an accelerator the next round is prepared while this one is computed, but no further ahead
        jax.block_until_ready(self.state.params if jax.default_backend() == "cpu" else before.params)
        check_release(event, self.algorithm)
        if isinstance(self.sampling, Unproven):
            self.participated[clients] += 1
        self._tell(self.state.clip, cohort.simulation_only, time.monotonic() - started)

    def _block(self, blocks: Blocks, last: int, stop: Callable[[int], int]) -> None:
        """Several rounds; meanwhile the next ones are drawn, which stay in memory until they are paid for."""
        started, first = time.monotonic(), self.round
        ahead = self._ahead.result() if self._ahead else []
        if not ahead or ahead[0].end > last:  # the budget allows fewer rounds than were expected
            ahead = [self._draw_block(blocks, first, min(last, stop(first)), self.participated)]
        drawn, *ahead = ahead
        self._ahead = self._host.submit(self._prepared, blocks, stop, drawn, ahead)
        self.state, told = blocks.compute(self.state, drawn.block)
        self.participated = drawn.participated
        seconds = (time.monotonic() - started) / (drawn.end - first)
        for cohort, one in zip(drawn.block.cohorts, told, strict=True):
            self._tell(one.clip, {**cohort.simulation_only, **one.counts}, seconds)

    def _prepared(
        self, blocks: Blocks, stop: Callable[[int], int], now: "_Drawn", ahead: list["_Drawn"]
    ) -> list["_Drawn"]:
        """The two blocks after the one `now`: the noise of the first is decided, that of the second only begun.

        An accelerator computes in order. It draws what was begun one block ago, before the rounds that run now, so
        nobody waits for it.
        """
        while len(ahead) < _AHEAD and (before := [now, *ahead][-1]).end < self.privacy.rounds:
            ahead = [*ahead, self._draw_block(blocks, before.end, stop(before.end), before.participated)]
        if ahead:
            _ = ahead[0].block.drawn  # decided here, and kept
        return ahead

    def _draw_block(self, blocks: Blocks, first: int, end: int, participated: np.ndarray) -> "_Drawn":
        end, participated = min(first + blocks.width, end), participated.copy()
        cohorts: list[Any] = []
        for number in range(first, end):
            clients, cohort = self._cohort(number, participated)
            cohorts.append(cohort)
            if isinstance(self.sampling, Unproven):
                participated[clients] += 1
        block = blocks.draw(cohorts, [self._noise(number) for number in range(first, end)])
        return _Drawn(block, end, participated)

    def _cohort(self, number: int, participated: np.ndarray) -> tuple[np.ndarray, Cohort]:
        """The clients that are drawn for a round, and their cohort."""
        clients = self._draw(self.key.derive("cohort", number), participated)
        key = self.key.derive("clients", number)
        return clients, self.backend.cohort(clients, n_expected=self.sampling.n_expected, key=key)

    def _draw(self, key: Key, participated: np.ndarray) -> np.ndarray:
        if isinstance(self.sampling, Unproven):
            everyone = np.arange(self.privacy.population)
            return self.sampling.draw(key=key, available=everyone, participated=participated)
        return self.sampling.draw(key=key)

    def _noise(self, number: int) -> Key:
        """The key of a round's step."""
        return self.key.derive("noise", number)

    def _tell(self, clip: Any, counts: dict[str, Any], seconds: float) -> None:
        """Note that a round is done."""
        self.round += 1
        self.clients_per_s = self.sampling.n_expected / seconds  # the realised number is secret
        # the duration reveals the realised number, so it is secret too; counts may not have been computed yet
        seen = {**counts, "seconds": round(seconds, 6)}
        self.rows.append({"round": self.round, "clip": clip, "simulation_only": seen})

    def note(self, measured: dict[str, float]) -> None:
        """Keep metrics computed without noise, marked as such."""
        self.measured = {name: float(value) for name, value in measured.items()}
        self.rows[-1]["simulation_only"] |= self.measured

    def guarantee(self) -> Guarantee:
        """The guarantee of the rounds so far."""
        if self.round == 0:
            raise BudgetExceeded(
                f"not even one round fits the budget of population {self.population!r}: raise it, or use more noise"
            )
        return self.promise(dataclasses.replace(self.privacy, rounds=self.round))

    def epsilon_so_far(self) -> float:
        """A quick upper bound on the epsilon of the rounds so far."""
        rounds = self.sampling.event(self.event, self.round)
        return accountants.epsilon_by_renyi(Composed((*self.before, rounds)), self.delta, self.sampling.relation)

    def promise(self, privacy: Privacy) -> Guarantee:
        """The guarantee of the rounds in `privacy`."""
        terms: dict[str, Any] = {"delta": self.delta, "before": self.before, "assumptions": self.assumptions}
        return privacy.guarantee(release=self.event, **terms)

    def flush(self) -> None:
        """Write metrics to disk."""
        for row in self.rows:
            seen = row["simulation_only"].items()
            counts = {name: value if isinstance(value, float) else int(value) for name, value in seen}
            self.run.append("metrics.jsonl", {**row, "clip": float(row["clip"]), "simulation_only": counts})
        self.rows, self.flushed_at = [], time.monotonic()

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint may be left out since the one before is not on disk: short rounds wait for no disk.

        Counts of participation are never left out: rounds that are missing from them could be repeated with others.
        """
        return not (self.writer.is_idle or isinstance(self.sampling, Unproven))

    def save(self) -> None:
        """Checkpoint everything that the rest of the run depends on, while the next rounds are computed."""
        self.flush()
        facts = {"round": self.round, "run": self.run_id, "ledger": self.head, "settings": self._settings()}
        state, counts, number = checkpoints.copied(self.state), {"participated": self.participated.copy()}, self.round

        def write() -> None:
            if isinstance(self.sampling, Unproven):  # first, so that every checkpoint has its counts
                checkpoints.write(self.run.path / _SECRET, number, counts, {"run": self.run_id}, secret=True)
            checkpoints.write(self.run.path, number, {"state": state}, facts)

        self.writer.submit(write)
        self.saved_at, self.saved_round = time.monotonic(), number

    def restore(self) -> None:
        """Continue from the newest checkpoint, if any; refuses one with other settings."""
        path = checkpoints.newest(self.run.path)
        if path is None:
            self.run.keep_rows("metrics.jsonl", lambda row: False)
            return
        saved = checkpoints.load(path, {"state": self.state})
        if saved.facts["settings"] != self._settings():
            raise InvalidInput(
                f"{self.run.path} was started with other privacy settings or another type of key: resume "
                "it with those, or start another run"
            )
        self.ledger.verify(saved.facts["ledger"] or None).raise_if_broken()
        self.state, self.round, self.head = saved.tree["state"], saved.facts["round"], saved.facts["ledger"]
        self.saved_round = self.round
        if isinstance(self.sampling, Unproven):
            secret = checkpoints.path_of(self.run.path / _SECRET, self.round)  # older runs had the counts in `path`
            counts = checkpoints.load(secret if secret.exists() else path, {"participated": self.participated})
            self.participated = np.array(counts.tree["participated"])
        self.run.keep_rows("metrics.jsonl", lambda row: row["round"] <= self.round)

    def _settings(self) -> dict[str, Any]:
        """Settings that must not change during a run; the number of rounds may."""
        fixed = dataclasses.asdict(dataclasses.replace(self.privacy, rounds=1))
        fixed |= {"event": to_json(self.event), "delta": self.delta, "unit": str(self.privacy.unit)}
        return fixed | ({"before": [to_json(event) for event in self.before]} if self.before else {})
