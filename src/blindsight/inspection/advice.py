"""What to do with the answer of an inspection."""

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.sections import Facts

__all__ = ["next_steps"]

LABEL = (
    "Label the samples: `blindsight label FOLDER` opens a page with one key for each class and saves every label. "
    "Several people can label; `blindsight label FOLDER --agreement` shows how far they agree.",
    "Or import `label_studio.json` into Label Studio, with `label_studio.xml` as the labelling interface, and bring "
    "the annotations back with `blindsight label FOLDER --import annotations.json`.",
    "Train on the labels: `blindsight train student FOLDER`. The student inherits the guarantee and spends nothing "
    "more.",
)
COLLECT = (
    "Read the findings from the top: the training data lack what is more frequent in serving. Samples, words and "
    "shares show it.",
    "Collect or label more of it (`blindsight inspect labelling` makes synthetic samples to label), or weight it "
    "higher in training.",
)
NOTHING = (
    "Anything rarer than the smallest detectable share in the findings may have gone undetected: ask more clients or "
    "spend more epsilon. `blindsight plan --detect` computes the detection power in advance.",
    "Ask about narrower slices if complaints come from one version, region or type of device.",
)
ASKED = (
    "All intervals hold together with a probability of 95 %: compare numbers by whether their intervals overlap.",
    "Where an interval is too wide, ask for fewer statistics, bins or slices: all of a question share its epsilon. "
    "`--dry-run` shows the widths in advance.",
)


def next_steps(report: Facts) -> tuple[str, ...]:
    """Sentences in order of priority; commands stand between backticks."""
    again = (
        f"Repeat the inspection after the change. On the same clients it costs at most another epsilon "
        f"{round_up(report.guarantee.epsilon)}, and the ledger adds it up."
    )
    if report.task == "labelling":
        return LABEL
    if report.task == "ask":
        return ASKED
    if report.outcome == "nothing":
        return NOTHING
    if report.outcome == "fault":
        return (*_repair(report.named[0].fault), again)
    if report.task == "bias":
        return (*COLLECT, again)
    unexplained = "No candidate fault explains it. " if report.diagnoses else ""
    return (
        "Read the findings from the top: they say what differs, and the samples show it.",
        f"{unexplained}Pass the faults you suspect as candidates to the next inspection.",
        again,
    )


def _repair(fault: str) -> tuple[str, str]:
    return (
        f"Find the step that applies {fault!r} to the model's input: compare versions, devices and settings before and "
        "after the change.",
        f"Until it is fixed, undo {fault!r} on the client before the model sees the input, or roll back.",
    )
