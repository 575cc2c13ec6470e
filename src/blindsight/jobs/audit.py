"""An audit from a run's folder: what `blindsight audit RUN` does."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from blindsight import runs
from blindsight.accounting.guarantee import Guarantee, round_down
from blindsight.audit.canaries import Canaries
from blindsight.audit.exposure import exposures, ranks, references
from blindsight.audit.extraction import extracted
from blindsight.audit.membership import client_scores, direction_scores
from blindsight.audit.one_run import LowerBound, lower_bound
from blindsight.audit.report import AuditReport, CanaryFate
from blindsight.config import Config
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.jobs.algorithm import make_loss
from blindsight.jobs.planting import FILE, Plants, alphabet, audit_of, coin_clients, kept_plants, marks
from blindsight.jobs.train import TrainedRun, load_trained
from blindsight.progress import Progress, quiet

__all__ = ["run_audit"]


def run_audit(
    folder: str | Path,
    *,
    references: int = 2_000_000,
    width: int = 5,
    confidence: float = 0.95,
    out: str | Path | None = None,
    population: Population | None = None,
    progress: Progress = quiet,
) -> tuple[AuditReport, Path]:
    """Audit the finished run in `folder`, trained with a table [audit]; returns the report and the path of its page.

    It reads the released model and what the auditor planted, no client's data.

    Args:
        folder: Folder of the run.
        references: Random canaries to rank the planted ones among.
        width: Width of the beam search for canaries.
        confidence: Confidence of the lower bounds on epsilon.
        out: Folder of `audit.html` and `audit.json`; the run's by default.
        population: The data that the run's configuration names; pass it if it is already loaded.
        progress: Called with what is being done, the steps done and their total.
    """
    run = runs.open_run(folder)
    if not (run.path / FILE).exists():
        raise InvalidInput(f"{folder} has no canaries: train it with a table [audit] (see docs/audit.md)")
    if not (run.path / "result.json").exists():
        raise InvalidInput(f"{folder} has not finished training: resume it with blindsight train, then audit it")
    trained = load_trained(folder, population=population)
    vocabulary = trained.vocabulary if trained.config.model.kind == "word_lm" else None
    plants = kept_plants(run, vocabulary)
    guarantee, rounds = _claim(run)
    fates = _fates(trained, plants, rounds, references, width, progress) if plants.canaries else ()
    bounds = _bounds(trained, plants, confidence, guarantee.delta, progress)
    report = AuditReport(
        run=run.path.name,
        model=f"{trained.config.model.kind} on {trained.clients.name}",
        guarantee=guarantee,
        rounds=rounds,
        canaries=fates,
        references=references if fates else 0,
        width=width if fates else 0,
        prefix=plants.canaries.prefix if plants.canaries else 0,
        rate=audit_of(trained.config).rate if fates else 0.0,
        bounds=bounds,
        confidence=confidence,
        notes=tuple(_notes(bounds, guarantee)),
    )
    target = Path(out) if out is not None else run.path
    report.save_json(target / "audit.json")
    return report, report.save(target / "audit.html")


def _claim(run: runs.Run) -> tuple[Guarantee, int]:
    """The run's guarantee and its number of rounds."""
    try:
        return Guarantee.from_dict(run.read("guarantee.json")), int(run.read("result.json")["rounds"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(
            f"{run.path} has a damaged guarantee.json or result.json ({error!r}): run blindsight train again"
        ) from error


def _notes(bounds: Mapping[str, LowerBound], guarantee: Guarantee) -> Iterator[str]:
    """What the audit was too small to show."""
    for kind, bound in bounds.items():
        if guarantee.is_private and bound.most <= guarantee.epsilon:
            yield (
                f"Even if every guess were right, {bound.canaries} planted {kind} could only show an epsilon of "
                f"{round_down(bound.most)} at delta {bound.delta:.3g}, which is within the claim: plant more."
            )


def _bounds(
    trained: TrainedRun, plants: Plants, confidence: float, delta: float, progress: Progress
) -> dict[str, LowerBound]:
    """The one-run lower bounds, which hold together at `confidence`."""
    config, scores = trained.config, dict[str, tuple[np.ndarray, np.ndarray]]()
    if len(plants.clients):
        progress("scoring planted clients", 0, 1)
        planted = coin_clients(config, plants, trained.clients, trained.vocabulary, copies=1)
        scores["clients"] = client_scores(trained.model, planted, make_loss(config)), plants.clients
    if len(plants.directions):
        progress("measuring planted directions", 0, 1)
        key = plants.key.derive("directions")
        along = direction_scores(trained.initial, trained.model, len(plants.directions), key=key)
        scores["directions"] = along, plants.directions
    each = 1 - (1 - confidence) / max(len(scores), 1)
    return {kind: lower_bound(*pair, delta=delta, confidence=each) for kind, pair in scores.items()}


def _fates(
    trained: TrainedRun, plants: Plants, rounds: int, count: int, width: int, progress: Progress
) -> tuple[CanaryFate, ...]:
    """The fate of each Secret Sharer canary: its rank, and whether beam search extracts it."""
    config, vocabulary, canaries = trained.config, trained.vocabulary, plants.canaries
    if canaries is None or vocabulary is None:
        return ()
    contexts, secrets = canaries.contexts(marks(config)[0]), canaries.secrets
    is_extracted = extracted(trained.model, contexts, secrets, width=width)
    compared = references(alphabet(config, vocabulary), count, secrets.shape[1], key=plants.key)
    rank: list[int] = []
    for number in range(canaries.size):
        progress("ranking canaries", number, canaries.size)
        rank += ranks(trained.model, contexts[number, None], secrets[number, None], compared).tolist()
    seen, bits = canaries.times_seen(audit_of(config).rate, rounds), exposures(rank, count)
    return tuple(
        CanaryFate(
            phrase=_in_words(canaries, number, config, vocabulary),
            clients=int(canaries.clients[number]),
            copies=int(canaries.copies[number]),
            times_seen=float(seen[number]),
            rank=rank[number],
            exposure=float(bits[number]),
            extracted=bool(is_extracted[number]),
        )
        for number in range(canaries.size)
    )


def _in_words(canaries: Canaries, number: int, config: Config, vocabulary: Vocabulary) -> str:
    tokens = canaries.phrases[number].tolist()
    if config.model.kind == "char_lm":
        return bytes(tokens).decode()
    return " ".join(vocabulary.word(token) for token in tokens)
