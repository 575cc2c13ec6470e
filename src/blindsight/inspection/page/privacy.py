"""What the page says of privacy: the bar that is always in sight, and the table of releases."""

import math
from html import escape
from typing import TYPE_CHECKING, Any

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.page import words

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["bar", "population", "provenance", "releases"]

SHIELD = '<svg viewBox="0 0 16 18" width="16" height="18" aria-hidden="true"><path d="M8 1l6.5 2.2v5.3c0 4-2.8 6.9-6.5 8.3C4.3 15.4 1.5 12.5 1.5 8.5V3.2z"/></svg>'  # noqa: E501
HEADINGS = {"what": "release", "epsilon": "epsilon, alone", "noise_std": "noise (std)", "coordinates": "coordinates"}


def bar(report: "Report") -> str:
    """Unit, epsilon, delta, relation and releases in one line; the rest opens with a click."""
    promise = report.guarantee
    if promise.is_private:
        facts = [
            ("epsilon", f"≤ {round_up(promise.epsilon)}"),
            ("delta", f"{promise.delta:.3g}"),
            ("unit", f"per {promise.unit}"),
            ("neighbours", promise.relation.in_words),
            ("releases", f"{promise.releases:,}"),
            *(("all runs", f"≤ {round_up(one.epsilon)}") for one in report.ledger if math.isfinite(one.epsilon)),
        ]
        line = "".join(f"<span><i>{escape(name)}</i> {escape(value)}</span>" for name, value in facts)
    else:
        line = "<span><b>epsilon = inf: no privacy guarantee</b></span>"
    assumptions = "".join(f"<li>{words.prose(assumption)}</li>" for assumption in promise.assumptions)
    holds = f"<p>It holds if</p><ul>{assumptions}</ul>" if assumptions else ""
    covers = "".join(f"<p>{escape(sentence)}</p>" for sentence in report.coverage)
    return (
        f'<aside class="privacy{"" if promise.is_private else " none"}" aria-label="Privacy guarantee"><details>'
        f'<summary>{SHIELD}{line}<span class="more">what it means</span></summary><div class="fine">'
        f"<p>{escape(promise.explain().partition(' This holds if: ')[0])}</p>{covers}{holds}</div></details></aside>"
    )


def population(report: "Report") -> str:
    """Whom the report is about, in a few words; all of them are public."""
    name, clients = report.population.get("name"), report.population.get("clients")
    parts = [str(name)] if name else []
    parts += [f"{clients:,} clients" if isinstance(clients, int) else f"{clients} clients"] if clients else []
    classes = len(report.class_names)
    parts += [f"{classes} class{'' if classes == 1 else 'es'}"] if classes else []
    return " · ".join(parts)


def provenance(report: "Report") -> str:
    """Where everything on the page comes from."""
    if not report.guarantee.is_private:
        return "Every picture and row is synthetic, but nothing protects the clients they were made from."
    return (
        "Every picture and row is synthetic; every number is a release or computed from releases, under the guarantee "
        "at the top. Nobody looked at a client's data."
    )


def releases(report: "Report") -> str:
    """Everything that left the clients."""
    if not report.releases:
        return ""
    names = [*HEADINGS, *dict.fromkeys(name for release in report.releases for name in release if name not in HEADINGS)]
    names = [name for name in names if any(release.get(name) is not None for release in report.releases)]
    covered = " The guarantee at the top covers all of them together." if report.guarantee.is_private else ""
    others = "".join(f"<p>{escape(sentence)}</p>" for sentence in report.coverage)
    head = "".join(f"<th scope=col{_align(report, name)}>{escape(HEADINGS.get(name, name))}</th>" for name in names)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(HEADINGS.get(name, name))}"{_align(report, name)}>'
            f"{escape(_cell(name, release.get(name)))}</td>"
            for name in names
        )
        + "</tr>"
        for release in report.releases
    )
    return (
        '<section aria-labelledby="releases"><h2 id="releases">What left the clients</h2>'
        f"<p>Sums over clients{' with noise' if report.guarantee.is_private else ''}, and nothing else.{covered}</p>"
        f"{others}"
        f'<table class="stacked"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></section>'
    )


def _align(report: "Report", name: str) -> str:
    values = [release[name] for release in report.releases if release.get(name) is not None]
    return ' class="number"' if values and not any(isinstance(value, str | list | dict) for value in values) else ""


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name == "epsilon":
        return round_up(value)
    return f"{value:,}" if isinstance(value, int) else words.number(value, 4)
