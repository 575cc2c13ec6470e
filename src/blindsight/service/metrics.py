"""Prometheus metrics: totals only, kept as plain numbers so that they cost the hot path almost nothing.

Counters start at zero with each process, and every scrape of a process that shares a port reaches any of them: give
each process its own `admin_listen` and let Prometheus add up. Whatever is a property of the model and not of a process
(its spread, frozen) is a gauge, to be read with `max` or `avg`.
"""

import dataclasses
import resource
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from blindsight.service.listeners import Listener
from blindsight.service.pool import Pool
from blindsight.service.protocol import CAUSES, MORE_CAUSES
from blindsight.service.shown import expected_spread
from blindsight.version import __version__

__all__ = ["Kept", "Latencies", "Totals"]

_EDGES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class Kept:
    """The state of the store: whether it can keep updates, its last snapshot, and models that are out of service."""

    is_ready: bool = False
    saved_at: float = 0.0
    failures: int = 0
    faults: int = 0


class Latencies:
    """A histogram of request durations."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_EDGES) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """One more request."""
        self._counts[bisect_left(_EDGES, seconds)] += 1
        self._total += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The histogram as text."""
        below = 0
        for edge, count in zip([*map(str, _EDGES), "+Inf"], self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels},le="{edge}"}} {below}'
        yield f"{name}_sum{{{labels}}} {self._total}"
        yield f"{name}_count{{{labels}}} {below}"


class Totals:
    """Counts of one process since its start."""

    def __init__(self) -> None:
        self.began = time.time()
        self.draw_s = Latencies()
        self.update_s = Latencies()
        self.refused = Counter(
            dict.fromkeys([*CAUSES.values(), *MORE_CAUSES], 0)
        )  # a counter that appears late hides its first increase
        self.late_s = 0.0

    def refuse(self, cause: str) -> None:
        """One more refusal with this cause."""
        self.refused[cause] += 1

    def text(
        self,
        pools: Iterable[Pool],
        listeners: Iterable[Listener] = (),
        shedding: float = 0.0,
        store: "Kept | None" = None,
        spreads: Mapping[str, float] | None = None,
    ) -> str:
        """Everything in Prometheus' text format; `spreads` are the models', by name."""
        named = list(pools)
        lines = [*self._requests(), *_models(named), *_guards(named), *_spreads(named, spreads or {})]
        lines += _kept(store or Kept())
        lines += [*_connections(list(listeners)), *self._process(shedding)]
        return "\n".join(lines) + "\n"

    def _requests(self) -> Iterator[str]:
        yield from _head("blindsight_refusals_total", "counter", "refused requests by cause")
        for cause, count in sorted(self.refused.items()):
            yield f'blindsight_refusals_total{{cause="{cause}"}} {count}'
        yield from _head("blindsight_request_duration_seconds", "histogram", "duration of draws and updates")
        yield from self.draw_s.lines("blindsight_request_duration_seconds", 'request="draw"')
        yield from self.update_s.lines("blindsight_request_duration_seconds", 'request="update"')

    def _process(self, shedding: float) -> Iterator[str]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime
        yield from _one("blindsight_build_info", "gauge", "running version", 1, f'version="{__version__}"')
        yield from _one("blindsight_loop_delay_seconds", "gauge", "delay of the event loop", max(self.late_s, 0.0))
        yield from _one("blindsight_shedding_ratio", "gauge", "share of draws that are refused under load", shedding)
        yield from _one("process_start_time_seconds", "gauge", "start time of this process", self.began)
        yield from _one("process_cpu_seconds_total", "counter", "CPU time of this process", cpu_s)
        yield from _one("process_resident_memory_bytes", "gauge", "memory of this process", _resident())


def _models(pools: list[Pool]) -> Iterator[str]:
    yield from _head("blindsight_draws_total", "counter", "instances handed out")
    for pool in pools:
        yield f'blindsight_draws_total{{model="{pool.model}"}} {pool.draws}'
    yield from _head("blindsight_updates_total", "counter", "updates by outcome")
    for pool in pools:
        for outcome, count in (("taken", pool.taken), ("spam", pool.spam), ("replayed", pool.replays)):
            yield f'blindsight_updates_total{{model="{pool.model}",outcome="{outcome}"}} {count}'
    yield from _head("blindsight_model_frozen", "gauge", "whether training is stopped")
    for pool in pools:
        yield f'blindsight_model_frozen{{model="{pool.model}"}} {int(pool.record.frozen)}'


def _guards(pools: list[Pool]) -> Iterator[str]:
    """The counts of the guards against spam."""
    yield from _head("blindsight_updates_shortened_total", "counter", "updates longer than one step and its noise")
    for pool in pools:
        yield f'blindsight_updates_shortened_total{{model="{pool.model}"}} {pool.guard.shortened}'
    yield from _head("blindsight_model_drift", "gauge", "length of the mean of recent updates, over that of noise")
    for pool in pools:
        if (drift := pool.guard.sketch.drift) is not None:
            yield f'blindsight_model_drift{{model="{pool.model}"}} {drift}'
    yield from _head("blindsight_model_beside", "gauge", "what clients push beside public examples, over what 5 % can")
    for pool in pools:
        if (beside := pool.guard.beside) is not None:
            yield f'blindsight_model_beside{{model="{pool.model}"}} {beside}'
    yield from _head("blindsight_alarm", "gauge", "1 if a model was rolled back, or its spread cannot be explained")
    for pool in pools:
        yield f'blindsight_alarm{{model="{pool.model}"}} {int(pool.alarm)}'
    canaries = [(pool.model, pool.canary) for pool in pools if pool.canary is not None]
    yield from _head("blindsight_rollbacks_total", "counter", "times a model got worse on its public examples")
    for model, canary in canaries:
        yield f'blindsight_rollbacks_total{{model="{model}"}} {canary.rollbacks}'
    yield from _head("blindsight_public_score", "gauge", "score of a model on its public examples")
    for model, canary in canaries:
        if canary.latest is not None:
            yield f'blindsight_public_score{{model="{model}",of="learned"}} {canary.latest.learned}'
            yield f'blindsight_public_score{{model="{model}",of="ranking"}} {canary.latest.ranking}'


def _spreads(pools: list[Pool], spreads: Mapping[str, float]) -> Iterator[str]:
    yield from _head("blindsight_model_spread", "gauge", "standard deviation over instances, over the one expected")
    for pool in pools:
        expected = expected_spread(pool.record.task, pool.batch)
        if pool.model in spreads and expected:
            yield f'blindsight_model_spread{{model="{pool.model}"}} {spreads[pool.model] / expected}'


def _kept(kept: Kept) -> Iterator[str]:
    yield from _one("blindsight_store_ready", "gauge", "whether the store can keep updates", int(kept.is_ready))
    yield from _one("blindsight_models_faulty", "gauge", "models that cannot be read", kept.faults)
    yield from _one("blindsight_snapshot_timestamp_seconds", "gauge", "time of the last snapshot", kept.saved_at)
    yield from _one("blindsight_snapshot_failures_total", "counter", "snapshots that failed", kept.failures)


def _connections(listeners: list[Listener]) -> Iterator[str]:
    named = list(zip(("clients", "admin"), listeners, strict=False))
    yield from _head("blindsight_connections", "gauge", "open connections")
    for name, listener in named:
        yield f'blindsight_connections{{listener="{name}"}} {listener.open}'
    yield from _head("blindsight_connections_limit", "gauge", "maximum number of open connections")
    for name, listener in named:
        yield f'blindsight_connections_limit{{listener="{name}"}} {listener.limits.connections}'
    yield from _head("blindsight_connections_accepted_total", "counter", "accepted connections")
    for name, listener in named:
        yield f'blindsight_connections_accepted_total{{listener="{name}"}} {listener.accepted}'
    yield from _head("blindsight_connections_closed_total", "counter", "connections closed by the service, by cause")
    for name, listener in named:
        for cause, count in sorted(listener.closed.items()):
            yield f'blindsight_connections_closed_total{{listener="{name}",cause="{cause}"}} {count}'


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def _one(name: str, kind: str, what: str, value: float, labels: str = "") -> Iterator[str]:
    yield from _head(name, kind, what)
    yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def _resident() -> int:
    """Resident memory now; its peak where the system has no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
