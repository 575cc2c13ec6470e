"""`blindsight site run`: the agent of a site, with its book, its policy and its data."""

import contextlib
import dataclasses
import datetime
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight.accounting.events import Event
from blindsight.data.schema import Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import Carrier
from blindsight.fleet.carriers.lines import line
from blindsight.fleet.certificates import identity_key
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import Job
from blindsight.fleet.secure_sum import RoundBook, signer
from blindsight.fleet.site.agent import Agent
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.credentials import is_open_to_others
from blindsight.fleet.site.duties import Opened
from blindsight.fleet.site.job_files import REFERENCE_FILES
from blindsight.fleet.site.policy import CLOCKS_DIFFER_S, Asked, Leaf, Ruling, Standing
from blindsight.fleet.site.settings import SiteSettings
from blindsight.inspection import public_inputs
from blindsight.inspection.question import Question
from blindsight.inspection.session import server_half
from blindsight.inspection.tasks import question_from
from blindsight.jobs.fleet_settings import cost_of_sums, ready
from blindsight.jobs.site_data import check_declared, clients_of, read_own
from blindsight.jobs.site_questions import OpenQuestion
from blindsight.jobs.site_training import OpenTraining
from blindsight.runs import write_whole

__all__ = ["agent_of", "run_site"]

_LISTED = 1000  # characters of fields' names that an officer reads
_SAME = 1e-6  # share of an epsilon by which two processors may differ; what is paid is checked as strictly


def run_site(settings: SiteSettings) -> None:
    """Connect, and answer until the process is told to end."""
    settings.check_papers()
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    desk = Desk(settings)
    if is_open_to_others(settings.key):
        desk.note(f"others on this machine may read {settings.key}: chmod 600 it")
    carrier = line(
        settings.site.server,
        settings.name,
        folder=settings.folder,
        authority=settings.authority,
        certificate=settings.certificate,
        key=settings.key,
        note=desk.note,
    )
    with contextlib.closing(carrier):
        agent_of(settings, carrier, desk).serve()


def agent_of(settings: SiteSettings, carrier: Carrier, desk: "Desk | None" = None) -> Agent:
    """The agent of a site on this line."""
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    desk = desk or Desk(settings)
    return Agent(
        settings.name,
        clients=settings.site.clients,
        carrier=carrier,
        parties=settings.roster,
        sign=signer(identity_key(settings.key.read_bytes())),
        rounds=RoundBook(settings.rounds),
        clerk=desk,
        work=desk,
        folder=settings.state / "jobs",
    )


class Desk:
    """A site's decisions, payments and answers: its book on one side, its data on the other."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings, self.book = settings, Book(settings)
        self._read: tuple[str, Asked] | None = None  # the last job: planning it takes seconds

    # --- deciding

    def decide(self, job: Job, inputs: Mapping[str, bytes], folder: Path, sent_at: str) -> tuple[str, Code | None]:
        """The policy's or the officer's decision on a job; reads no data."""
        write_whole(folder / "job.json", json.dumps(job.to_dict()))
        try:
            ruling = self.book.decide(self._asked(job, inputs, folder, sent_at))
        except Declined as error:
            return "refused", error.code
        except InvalidInput as error:
            self.note(f"refused job {job.digest[:12]}, which is not valid: {error}")
            return "refused", Code.malformed
        return _in_short(ruling)

    def standing(self, job: Job, sent_at: str) -> tuple[str, Code | None]:
        """What the last decision on a job means now."""
        late = abs((datetime.datetime.now(datetime.UTC) - _time_of(sent_at)).total_seconds())
        if late > CLOCKS_DIFFER_S:
            self.note(f"the clock of the coordinator and this one differ by {late / 60:.0f} minutes: set them right")
            return "refused", Code.clock
        return _in_short(self.book.standing(job.digest))

    def _asked(self, job: Job, inputs: Mapping[str, bytes], folder: Path, sent_at: str) -> Asked:
        """The job as an officer reads it, as if it had just been sent and received."""
        times = {"sent_at": _time_of(sent_at), "received_at": datetime.datetime.now(datetime.UTC)}
        if self._read is None or self._read[0] != job.digest:
            self._read = job.digest, _asked(job, inputs, folder, **times)
        return dataclasses.replace(self._read[1], **times)

    def job(self, digest: str, folder: Path) -> Job | None:
        """A job that was decided on before."""
        with contextlib.suppress(OSError, ValueError, BlindsightError):
            job = Job.from_dict(json.loads((folder / "job.json").read_text(encoding="utf-8")))
            return job if job.digest == digest else None
        return None

    def note(self, words: str) -> None:
        """Write into the diary; a full disk does not stop the agent."""
        with contextlib.suppress(BlindsightError):
            self.book.diary.write(words)

    # --- answering

    def open(self, job: Job, inputs: Mapping[str, bytes], folder: Path) -> Opened:
        """The site's data, opened for an approved job."""

        def pay(event: Event, note: str, *, is_again: bool = False, begin: Callable[[], None] = lambda: None) -> None:
            self.book.pay(job.digest, event, note=note, is_again=is_again, begin=begin)

        if job.kind == "training":
            clients = read_own(self.settings, Schema.from_dict(job.content["schema"]).fields)
            check_declared(self.settings, clients)
            return OpenTraining.of(job, self.settings.name, clients, _words(inputs), folder, pay)
        question = question_from(job.content)
        public = public_inputs.unpack(inputs, folder / REFERENCE_FILES, seed=bytes.fromhex(job.seed))
        clients = clients_of(self.settings, question.schema, job.reading)
        return OpenQuestion(job=job, site=self.settings.name, clients=clients, public=public, folder=folder, pay=pay)


def _in_short(ruling: Ruling) -> tuple[str, Code | None]:
    if ruling.state is Standing.APPROVED:
        return "approved", None
    return ("pending" if ruling.state is Standing.PENDING else "refused"), ruling.code


def _time_of(sent_at: str) -> datetime.datetime:
    try:
        time = datetime.datetime.fromisoformat(sent_at)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput("a message does not say when it was sent, with a zone")
    return time


def _words(inputs: Mapping[str, bytes]) -> Vocabulary | None:
    return public_inputs.vocabulary_from(inputs["vocabulary"]) if "vocabulary" in inputs else None


def _asked(
    job: Job,
    inputs: Mapping[str, bytes],
    folder: Path,
    *,
    sent_at: datetime.datetime,
    received_at: datetime.datetime,
) -> Asked:
    """A job as an officer reads it: recomputed here from the job, never taken from the coordinator's words."""
    try:
        told = _training(job, inputs) if job.kind == "training" else _question(job, inputs, folder)
    except BlindsightError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidInput(f"the job cannot be read ({type(error).__name__}: {error})") from error
    return Asked(
        job=job.digest,
        kind=job.kind,
        asker=job.asker or "the coordinator",
        epsilon=job.epsilon,
        delta=job.delta,
        noise=_noise_in_words(job),
        reproducible=job.reproducible,
        is_seen=job.noise == "coordinator",
        colluding=job.colluding,
        version=job.version,
        sent_at=sent_at,
        received_at=received_at,
        **told,
    )


def _question(job: Job, inputs: Mapping[str, bytes], folder: Path) -> dict[str, Any]:
    """What is asked, and what would leave."""
    question = question_from(job.content)
    if (question.epsilon, question.delta) != (job.epsilon, job.delta) or question.clients != job.total:
        raise InvalidInput("the job states another cost or number of clients than its question")
    public = public_inputs.unpack(inputs, folder / REFERENCE_FILES, seed=bytes.fromhex(job.seed))
    planned = server_half(question).plan(question, public)
    leaves = tuple(Leaf(part.name, part.coordinates, float(getattr(part, "bound", 1.0))) for part in planned.parts)
    words = " ".join(f"{question.sentence('this fleet')} {_fields_read(job, question)}".split())
    return {"task": question.task, "sentence": words, "leaves": leaves, "rounds": planned.rounds}


def _fields_read(job: Job, question: Question) -> str:
    """Which fields of the site's data are read, as the job names them."""
    own = [job.reading[one] for one in ("text", "side")] if "side" in job.reading else question.schema.fields
    names = ", ".join(map(str, own))
    return f"It reads {names}." if len(names) <= _LISTED else f"It reads {len(own)} fields: {names[:_LISTED]}…"


def _training(job: Job, inputs: Mapping[str, bytes]) -> dict[str, Any]:
    """What is trained, for how many rounds, and what every round costs."""
    clients = Schema.from_dict(job.content["schema"]).population()
    config, _, privacy, algorithm = ready(job, clients, _words(inputs))
    sums, epsilon = cost_of_sums(privacy, algorithm.event, job.delta)
    if sums != job.content["sums"] or not math.isclose(epsilon, job.epsilon, rel_tol=_SAME):
        raise InvalidInput("the job states another number of rounds or another cost than its settings have")
    weights = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(algorithm.init().params))
    words = (
        f"train a {config.model.kind} of {weights:,} weights on {', '.join(job.content['schema']['fields'])}: "
        f"{privacy.rounds:,} rounds of about {privacy.cohort:,.0f} of {job.total:,} clients, chosen at the sites"
    )
    leaves = (Leaf("update", weights, float(privacy.clip)),)
    return {"task": "train", "sentence": words, "leaves": leaves, "rounds": sums}


def _noise_in_words(job: Job) -> str:
    if job.reproducible:
        return "the noise follows from a seed that the asker knows, so it hides nothing from the asker"
    if job.noise == "coordinator":
        if job.is_secure:
            return "the coordinator adds the noise and sees the exact sum over all sites: it must be trusted with it"
        return (
            "the coordinator adds the noise; it and whoever runs the server between it and this site see this site's "
            "exact sums: they must be trusted with them"
        )
    return (
        f"every site adds a share: at least {job.fewest} of {len(job.clients)} sites are in a sum, and up to "
        f"{job.colluding} of them may disclose their shares to the coordinator"
    )
