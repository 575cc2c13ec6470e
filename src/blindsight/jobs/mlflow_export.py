"""`blindsight runs export --mlflow`: what a run may reveal, written to an MLflow tracking server or folder.

Many people read MLflow, and it keeps everything. So only two kinds of values are exported: those that the run's
guarantee covers, and those marked `simulation_only` by name. Seeds stay behind: they reveal the noise of a reproducible
run. So do checkpoints, rounds, labels and whatever else lies in the folder.
"""

import dataclasses
import datetime
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from blindsight import runs
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["Exportable", "Logged", "exportable", "run_mlflow_export"]

COVERED = (
    *("guarantee.json", "report.html", "report.json", "audit.html", "audit.json"),
    *("samples/samples.parquet", "samples/README.md"),
)
"""Files that hold nothing but releases, what was computed from them, and public data."""

MARK = "simulation_only"
_RUN_TAG = "blindsight.run"
_LONGEST = 500  # characters of a parameter or a tag that every tracking server takes
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # --json prints JSON and nothing else
}


@dataclasses.dataclass(frozen=True)
class Exportable:
    """What a run may reveal: settings, numbers by name and round, tags, and files by their path in the run's folder."""

    params: Mapping[str, str]
    metrics: tuple[tuple[str, float, int], ...]
    tags: Mapping[str, str]
    artifacts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Logged:
    """Where a run went: the MLflow run, and how much of it there was."""

    uri: str
    experiment: str
    mlflow_run: str
    params: int
    metrics: int
    artifacts: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def exportable(folder: str | Path) -> Exportable:
    """What the run in `folder` may reveal.

    **Guarantee**: numbers and files that no guarantee covers are left out, or are named `simulation_only`. All numbers
    of a run without privacy are, and its files are left out.
    """
    run = runs.open_run(folder)
    if not (run.path / "guarantee.json").is_file():
        raise InvalidInput(f"the run {run.path} has released nothing yet: run its command again to finish it")
    guarantee, header = Guarantee.from_dict(run.read("guarantee.json")), run.read("run.json")
    files = tuple(file for file in COVERED if (run.path / file).is_file()) if guarantee.is_private else ()
    return Exportable(
        params=dict(_params(header.get("settings") or {})),
        metrics=tuple(_metrics(run, guarantee)),
        tags={name: value[:_LONGEST] for name, value in _tags(run, header, guarantee).items()},
        artifacts=files,
    )


def run_mlflow_export(folder: str | Path, uri: str, *, experiment: str = "blindsight") -> Logged:
    """Write the run in `folder` to the MLflow tracking server or folder at `uri`. Nothing is released.

    Args:
        folder: The run's folder.
        uri: Tracking URI, such as http://127.0.0.1:5000 or file:///srv/mlruns.
        experiment: Name of the experiment there, which is made if it does not exist.
    """
    exported, run = exportable(folder), runs.open_run(folder)
    identity, name = exported.tags[_RUN_TAG], str(run.read("run.json")["name"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow about itself
        client = _client(uri)
        try:
            mlflow_run = _write(client, exported, run, experiment, name=name, identity=identity)
        except InvalidInput:
            raise
        except Exception as error:  # MLflow's own, and those of whatever carries it
            raise BlindsightError(
                f"MLflow at {uri} refused ({_in_short(error)}): check the address, or choose another"
            ) from error
    return Logged(uri, experiment, mlflow_run, len(exported.params), len(exported.metrics), exported.artifacts)


def _write(client: Any, exported: Exportable, run: runs.Run, experiment: str, *, name: str, identity: str) -> str:
    """Everything in one MLflow run, which counts as finished only when all of it is there."""
    existing = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if existing is None else existing.experiment_id
    if earlier := client.search_runs([place], filter_string=f"tags.`{_RUN_TAG}` = '{identity}'", max_results=1):
        raise InvalidInput(
            f"the experiment {experiment!r} has this run already, as {earlier[0].info.run_id}: delete it there, or "
            "choose another --experiment"
        )
    began = datetime.datetime.fromisoformat(run.read("run.json")["began"])
    new = client.create_run(place, start_time=int(1000 * began.timestamp()), tags=dict(exported.tags), run_name=name)
    number = new.info.run_id
    try:
        entities = importlib.import_module("mlflow.entities")
        params = [entities.Param(key, value) for key, value in exported.params.items()]
        stamp = int(1000 * began.timestamp())
        metrics = [entities.Metric(key, value, stamp, step) for key, value, step in exported.metrics]
        for begin in range(0, len(params), 100):  # what a server takes at once
            client.log_batch(number, params=params[begin : begin + 100])
        for begin in range(0, len(metrics), 1000):
            client.log_batch(number, metrics=metrics[begin : begin + 1000])
        for file in exported.artifacts:
            inside = str(Path(file).parent)
            client.log_artifact(number, str(run.path / file), None if inside == "." else inside)
    except BaseException:
        client.set_terminated(number, status="FAILED")
        raise
    client.set_terminated(number)
    return number


def _client(uri: str) -> Any:
    scheme = uri.partition(":")[0].lower()
    if scheme not in ("http", "https", "file"):
        raise InvalidInput(
            f"--mlflow takes the address of a server, http://..., or a folder, file:///..., got {uri!r}: start "
            "mlflow server for a database"
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if scheme == "file":
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the user named this address
    try:
        mlflow = importlib.import_module("mlflow")
    except ImportError as error:
        raise BlindsightError('this needs MLflow: pip install "blindsight[mlflow]"') from error
    try:
        return mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    except Exception as error:
        raise BlindsightError(f"MLflow at {uri} refused ({_in_short(error)}): check the address") from error


def _params(settings: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their path, `privacy.clip`, without seeds and without what only simulations know."""
    if not isinstance(settings, Mapping):
        yield place or "settings", str(settings)[:_LONGEST]
        return
    for name, value in settings.items():
        if "seed" not in str(name).lower() and name != MARK and value is not None:
            yield from _params(value, f"{place}.{name}".lstrip("."))


def _metrics(run: runs.Run, guarantee: Guarantee) -> Iterator[tuple[str, float, int]]:
    """Numbers by round and of the whole run; those that no guarantee covers are marked by their names."""
    plain = "" if guarantee.is_private else f"{MARK}."
    if guarantee.is_private:
        yield from (("epsilon", guarantee.epsilon, 0), ("delta", guarantee.delta, 0))
    for row in run.rows("metrics.jsonl"):
        step = int(row.get("round", 0))
        released = {name: value for name, value in row.items() if name not in ("round", MARK)}
        yield from _numbers(released, plain, step)
        yield from _numbers(row.get(MARK, {}), f"{MARK}.", step)
    if (run.path / "result.json").is_file():
        yield from _numbers(run.read("result.json").get(MARK, {}), f"{MARK}.final.", 0)
    if (run.path / f"{MARK}.json").is_file():
        yield from _numbers(run.read(f"{MARK}.json"), f"{MARK}.", 0)
    if (run.path / "report.json").is_file():
        yield from _of_report(run.read("report.json"), plain)


def _of_report(report: Mapping[str, Any], plain: str) -> Iterator[tuple[str, float, int]]:
    """How much an inspection found, or how good a student is on public data."""
    if isinstance(findings := report.get("findings"), list):
        yield f"{plain}findings.tests", float(len(findings)), 0
        yield f"{plain}findings.detected", float(sum(one.get("verdict") == "detected" for one in findings)), 0
    if isinstance(public := report.get("public"), Mapping):
        yield from _numbers(public, "public.", 0)


def _numbers(values: Any, prefix: str, step: int) -> Iterator[tuple[str, float, int]]:
    if not isinstance(values, Mapping):
        return
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value), step


def _tags(run: runs.Run, header: Mapping[str, Any], guarantee: Guarantee) -> dict[str, str]:
    """The guarantee and the verdict."""
    tags = {
        _RUN_TAG: str(header["id"]),
        "blindsight.version": str(header["version"]),
        "guarantee": str(guarantee) if guarantee.is_private else "epsilon = inf: no privacy guarantee",
        "guarantee.epsilon": round_up(guarantee.epsilon) if guarantee.is_private else "inf",
        "guarantee.delta": f"{guarantee.delta:g}",
        "guarantee.unit": str(guarantee.unit),
        "guarantee.relation": guarantee.relation.in_words,
        "guarantee.accountant": guarantee.accountant,
        "guarantee.participation": guarantee.participation,
    }
    tags |= {f"guarantee.assumption.{n + 1}": one for n, one in enumerate(guarantee.assumptions)}
    if guarantee.is_private and (run.path / "report.json").is_file():
        report = run.read("report.json")
        tags |= {name: str(report[name]) for name in ("task", "outcome", "verdict") if report.get(name)}
    return tags


def _in_short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
