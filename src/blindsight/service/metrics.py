"""Prometheus metrics: totals only, kept as plain numbers so that they cost the hot path almost nothing."""

import resource
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from blindsight.service.pool import Pool
from blindsight.version import __version__

__all__ = ["Latencies", "Totals"]

_EDGES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


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
        self.refused: dict[int, int] = {}

    def refuse(self, status: int) -> None:
        """One more answer with this status."""
        self.refused[status] = self.refused.get(status, 0) + 1

    def text(self, pools: Iterable[Pool]) -> str:
        """Everything in Prometheus' text format."""
        return "\n".join(self._lines(list(pools))) + "\n"

    def _lines(self, pools: list[Pool]) -> Iterator[str]:
        yield from _head("blindsight_info", "gauge", "running version")
        yield f'blindsight_info{{version="{__version__}"}} 1'
        yield from _head("blindsight_draws_total", "counter", "instances handed out")
        for pool in pools:
            yield f'blindsight_draws_total{{model="{pool.record.model}"}} {pool.draws}'
        yield from _head("blindsight_updates_total", "counter", "updates by outcome")
        for pool in pools:
            for outcome, count in (("taken", pool.taken), ("spam", pool.spam), ("replayed", pool.replays)):
                yield f'blindsight_updates_total{{model="{pool.record.model}",outcome="{outcome}"}} {count}'
        yield from _head("blindsight_refused_total", "counter", "refused requests by status")
        for status, count in sorted(self.refused.items()):
            yield f'blindsight_refused_total{{status="{status}"}} {count}'
        yield from _head("blindsight_request_seconds", "histogram", "duration of draws and updates")
        yield from self.draw_s.lines("blindsight_request_seconds", 'request="draw"')
        yield from self.update_s.lines("blindsight_request_seconds", 'request="update"')
        yield from _head("process_start_time_seconds", "gauge", "start time of this process")
        yield f"process_start_time_seconds {self.began}"
        yield from _head("process_cpu_seconds_total", "counter", "CPU time of this process")
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield f"process_cpu_seconds_total {used.ru_utime + used.ru_stime}"
        yield from _head("process_peak_memory_bytes", "gauge", "peak memory of this process")
        yield f"process_peak_memory_bytes {used.ru_maxrss * 1024}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
