"""What a person sees of the tests: a line of progress, and at the end one that says what was run and what was not."""

import collections
import re
import sys
import time
from typing import Any

import pytest

_EVERY_S = 0.2  # on a terminal, where the line is written over
_STEPS = 10  # elsewhere: so many lines in all


class LeftOut:
    """Tells of a worker's tests that are left out."""

    def __init__(self, config: Any) -> None:
        self._output: dict[str, int] = config.workeroutput

    def pytest_deselected(self, items: list[Any]) -> None:
        self._output["left_out"] = self._output.get("left_out", 0) + len(items)


class Progress:
    """Takes the place of a dot for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._rewrites = sys.stdout.isatty()
        self._began = self._last = time.monotonic()
        self._total = self._done = self._left_out = self._said = 0
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._reasons: collections.Counter[str] = collections.Counter()

    def pytest_deselected(self, items: list[Any]) -> None:
        self._left_out += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = max(self._total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every worker leaves the same tests out."""
        self._left_out = max(self._left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No letter for a test; failures are told at the end as ever."""
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        return (outcome if report.when == "call" or outcome != "passed" else "", "", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or not report.passed:
            self._outcomes[report.outcome] += 1
        if report.failed:
            self._terminal.write_line(f"failed: {report.nodeid}")
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
        if report.when == "teardown":
            self._done += 1
            self._show()

    def _show(self) -> None:
        step = _STEPS * self._done // max(self._total, 1)
        if self._rewrites and (time.monotonic() - self._last >= _EVERY_S or self._done == self._total):
            self._last = time.monotonic()
            self._terminal.rewrite(self._line(), erase=True)
            self._terminal.flush()
        elif not self._rewrites and step > self._said:
            self._said = step
            self._terminal.write_line(self._line(), flush=True)

    def _line(self) -> str:
        failed = f", {self._outcomes['failed']:,} failed" if self._outcomes["failed"] else ""
        return f"{self._done:,} of {self._total:,} tests{failed}, {_minutes(time.monotonic() - self._began)}"

    def pytest_terminal_summary(self) -> None:
        if self._rewrites:
            self._terminal.write_line("")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """The last line of all."""
        parts = [
            f"{self._outcomes[outcome]:,} {outcome}" for outcome in ("passed", "failed") if self._outcomes[outcome]
        ]
        if self._reasons:
            reasons = "; ".join(f"{count:,} {_plain(why)}" for why, count in self._reasons.most_common())
            parts.append(f"{self._outcomes['skipped']:,} skipped ({reasons})")
        if self._left_out:
            parts.append(f"{self._left_out:,} slow ones left out (make test-all)")
        print(f"{', '.join(parts) or 'no tests'}, in {_minutes(time.monotonic() - self._began)}")


def _plain(reason: str) -> str:
    return re.sub(r"\s+", " ", reason).strip().rstrip(".")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
