"""What a shell completes: names of populations, faults and tasks, and folders of runs."""

from pathlib import Path

__all__ = ["complete_data", "complete_fault", "complete_run"]

_MOST = 100


def complete_data(incomplete: str) -> list[str]:
    """Names of embedded populations and of real data sets, else files and folders."""
    from blindsight.data.catalogue import DATASETS
    from blindsight.data.embedded import POPULATIONS

    return [name for name in (*POPULATIONS, *DATASETS) if name.startswith(incomplete)] + _paths(incomplete)


def complete_fault(incomplete: str) -> list[str]:
    """Names of faults; none once a share of clients follows the name, as in `invert:0.5`."""
    from blindsight.data.faults import FAULTS

    return [name for name in FAULTS if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs: those in `runs`, newest first, or those that match the path typed so far."""
    from blindsight.runs import find

    beside = Path(incomplete.rpartition("/")[0] or "/") if "/" in incomplete else Path("runs")
    folders = [str(run.path) for run in reversed(find(beside))]
    return [folder for folder in folders if folder.startswith(incomplete)][:_MOST]


def _paths(incomplete: str) -> list[str]:
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    named = [f"{path}/" if path.is_dir() else str(path) for path in entries]
    return [name for name in named if name.startswith(incomplete)][:_MOST]
