"""A guarantee as shown in a page's privacy bar."""

import dataclasses

from blindsight.accounting.guarantee import Guarantee, round_up

__all__ = ["PrivacyBar", "privacy_bar"]


@dataclasses.dataclass
class PrivacyBar:
    """What the template `bar.html` shows: facts in one line, then an explanation and the assumptions."""

    is_private: bool
    facts: list[tuple[str, str]]
    explanation: str
    assumptions: tuple[str, ...]


def privacy_bar(guarantee: Guarantee) -> PrivacyBar:
    """The bar of a page that `guarantee` covers."""
    facts = [
        ("epsilon", f"≤ {round_up(guarantee.epsilon)}"),
        ("delta", f"{guarantee.delta:.3g}"),
        ("unit", f"per {guarantee.unit}"),
        ("neighbours", guarantee.relation.in_words),
        ("releases", f"{guarantee.releases:,}"),
    ]
    explanation = guarantee.explain().partition(" This holds if: ")[0]
    return PrivacyBar(guarantee.is_private, facts, explanation, guarantee.assumptions)
