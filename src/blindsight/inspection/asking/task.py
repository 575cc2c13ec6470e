"""`ask`: all tables in one round, then lists of words, each paid for first; everything else reads the releases."""

import functools

from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.inspection import measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.asking import reading
from blindsight.inspection.asking.intervals import CONFIDENCE
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.asking.section import Statistic, Statistics
from blindsight.inspection.asking.tables import observe, tables_of
from blindsight.inspection.asking.words import chance_of, find_words, is_words, listings_of
from blindsight.inspection.measuring import Measurement
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import Progress, quiet
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, everything
from blindsight.wording import counted

__all__ = ["conduct", "plan", "rounds"]

NOTES = (
    "Each client counts once: its examples share its weight equally, so a client with many examples weighs as much as "
    "one with few. In a slice, a client's weight is the share of its examples that belong to it.",
    "All intervals of this report hold at once with a probability of 95 %. They are about this population and count "
    "the noise of the release, which is all that stands between a number and its true value.",
    "Values beyond a number's public range count as the end of the range.",
)


def rounds(question: Ask, public: Public, progress: Progress = quiet) -> Dialogue[Measurement | None]:
    """The round of all tables; none if only words are asked for."""
    del public
    tables = tables_of(question)
    if not tables:
        return None
    noise = _mechanisms(question)
    progress("asking everyone in one round", 0, 1 + len(listings_of(question)))
    return (
        yield Round(
            name="measure",
            schema=question.schema,
            observe=functools.partial(observe, tables, question.schema),
            arms=Arms({"everyone": everything()}),
            parts=tables,
            mechanisms={table.name: noise[table.name] for table in tables},
            note="statistics of fields",
        )
    )


def plan(question: Ask, public: Public) -> ReleasePlan:
    """What all tables and lists release, and how wide intervals would be."""
    del public
    tables, noise = tables_of(question), _mechanisms(question)
    widths = reading.expected(
        question, {table.name: noise[table.name].noise_multiplier * table.bound for table in tables}
    )
    notes = [f"Intervals if values are spread evenly: {'; '.join(widths)}."] if widths else []
    # below two deviations of noise even the number of clients in a table is unknown, and intervals span everything
    least = min((2 * noise[table.name].noise_multiplier * table.bound for table in tables), default=0.0)
    return ReleasePlan([*tables, *listings_of(question)], noise, chance_of(question), notes, least)


def _mechanisms(question: Ask) -> dict[str, GaussianMechanism]:
    """The noise of each table and list: equal shares of the precision, all of them within epsilon and delta."""
    parts = [*tables_of(question), *listings_of(question)]
    return measuring.noise_for(parts, epsilon=question.epsilon, delta=question.delta - chance_of(question))


def conduct(question: Ask, inquiry: Inquiry) -> Report:
    """Ask the round, list words if asked for, and read what was released."""
    noise, listings = _mechanisms(question), listings_of(question)
    steps, statistics = 1 + len(listings), dict[int, Statistic]()
    places = {one: place for place, one in enumerate(question.items)}
    measured = inquiry.ask(rounds(question, inquiry.public, inquiry.progress))
    # lists of words have separate noise: the product of all probabilities is the one that is promised
    confidence = CONFIDENCE ** (1 / (len(listings) + (measured is not None)))
    if measured is not None:
        answers, _ = reading.read(question, measured.parts, confidence=confidence)
        items = [item for item in question.items if not is_words(question, item)]
        statistics |= {places[item]: statistic for item, statistic in zip(items, answers, strict=True)}
    for number, listing in enumerate(listings, 1):
        inquiry.progress(f"listing {listing.name}", number, steps)
        listed = find_words(question, listing, noise[listing.name], inquiry, confidence)
        statistics[places[listing.item]] = listed
    assumed = (CLASSES_LISTED,) if question.schema.classes else ()
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=(ArmView("everyone"),),
        guarantee=inquiry.promise(f"full: all {question.clients:,}", assumed),
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": question.clients},
        notes=NOTES,
        ledger=inquiry.so_far(),
        answer=_answer(question, len(statistics)),
        statistics=Statistics(tuple(statistics[place] for place in sorted(statistics))),
    )


def _answer(question: Ask, count: int) -> str:
    statistics = counted(count, "statistic")
    return f"{statistics} of {counted(question.clients, 'client')}, with intervals that all hold at once (95 %)."
