"""What to do with the answer of an inspection."""

from typing import TYPE_CHECKING

from blindsight.accounting.guarantee import round_up

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["next_steps"]


def next_steps(report: "Report") -> tuple[str, ...]:
    """Some sentences in the order of what to do first; what stands between backticks is a command."""
    again = (
        f"Ask again after the change. The same inspection costs at most epsilon {round_up(report.guarantee.epsilon)} "
        "more on the same clients, and the ledger adds it up."
    )
    if report.task == "labelling":
        return (
            "Label them: `blindsight label FOLDER` opens a page with one key for each class and saves after every one; "
            "several people can, and `blindsight label FOLDER --agreement` says how far they agree.",
            "Or import `label_studio.json` into Label Studio, with `label_studio.xml` as the labelling interface, and "
            "bring the annotations back with `blindsight label FOLDER --import annotations.json`.",
            "Train on the labels: `blindsight train student FOLDER`. The student inherits the guarantee, and nothing "
            "more is spent.",
        )
    if report.outcome == "fault":
        fault = report.named[0].fault
        return (
            f"Look for the step that does {fault!r} to what the model is given: compare the versions, devices and "
            "settings that came before the change with those that came after.",
            f"Until it is repaired, undo {fault!r} on the client before the model sees the input, or roll back.",
            again,
        )
    if report.bias is not None and report.outcome == "difference":
        return (
            "Read the findings from the top: what serving has more of is what the training data lack, and the samples, "
            "words and shares show it.",
            "Collect or label more of it (`blindsight inspect labelling` gives synthetic samples to label), or weigh "
            "it higher in training.",
            again,
        )
    if report.outcome == "difference":
        unexplained = "No candidate explains it. " if report.diagnoses else ""
        return (
            "Read the findings from the top: they say what differs, and the samples show it.",
            f"{unexplained}Give the next inspection the faults you suspect as candidates.",
            again,
        )
    return (
        "What was rarer than the smallest share in the findings could not be seen: ask more clients, or spend more "
        "epsilon. `blindsight plan --detect` tells beforehand what would be seen.",
        "Ask about narrower slices if the complaint comes from one version, region or kind of device.",
    )
