"""What questions cost a site's clients, by its ledger: before a question, after it, and of the question alone.

Imported only for decisions and payments, because the arithmetic takes seconds to load.
"""

from collections.abc import Sequence

from blindsight.accounting import composition
from blindsight.accounting import filter as filters
from blindsight.accounting.composition import Share
from blindsight.accounting.events import Gaussian, Relation, Unit
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.accounting.spending import Spending
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.site.policy import Asked, EpsilonTotals

__all__ = ["check_question", "spent", "totals"]

_SAME = 1e-6  # share of an epsilon by which two computations of the same plan may differ


def totals(ledger: Ledger, site: str, asker: str, asked: Asked, *, delta: float, is_begun: bool) -> EpsilonTotals:
    """Spent now, and after the question as if it were Gaussian noise of its epsilon and delta, which most are.

    What a question really costs is checked when it pays, round by round. One that is `is_begun` is counted as it paid.

    Args:
        ledger: The site's ledger.
        site: The name under which everything is recorded.
        asker: The name under which this asker's questions are recorded.
        asked: The question.
        delta: The policy's delta.
        is_begun: Whether the question has paid before.
    """
    now = [spent(ledger, name, delta) for name in (site, asker)]
    if is_begun:
        return EpsilonTotals(total=now[0], asker=now[1], total_after=now[0], asker_after=now[1])
    noise = solve_noise(Gaussian, epsilon=asked.epsilon, delta=asked.delta)
    share = Share(Gaussian(noise), Unit(asked.unit), Relation.ADD_OR_REMOVE)
    after = [_after(ledger, name, share, asked, delta) for name in (site, asker)]
    return EpsilonTotals(total=now[0], asker=now[1], total_after=after[0], asker_after=after[1])


def spent(ledger: Ledger, name: str, delta: float) -> float:
    """The smallest total that would have allowed everything recorded under the name."""
    spending = ledger.spending(name)
    return ledger.adaptive_epsilon(name, delta) if spending.once else filters.spent(spending.total, delta)


def _after(ledger: Ledger, name: str, share: Share, asked: Asked, delta: float) -> float:
    """The same after the question; the only release of all may be counted as the plan that it is."""
    spending = ledger.spending(name)
    filtered = filters.spent(spending.with_more(share), delta)
    is_plan = asked.rounds == 1 and spending.once_with(share)
    return min(filtered, asked.epsilon) if is_plan and asked.delta <= delta else filtered


def check_question(asked: Asked, shares: Sequence[Share]) -> None:
    """Declines if the question's rounds, the one to be paid included, cost more than its own epsilon.

    Its rounds are a plan whose noise was fixed before it began, so they are composed as one. The filter, which holds
    for any choice, is tried first: it is fast.
    """
    spending = Spending()
    for share in shares:
        spending.add(share)
    if filters.is_within(spending.total, asked.epsilon, asked.delta):
        return
    epsilon = composition.certified(shares, asked.delta).epsilon
    if epsilon > asked.epsilon * (1 + _SAME):
        raise Declined(
            Code.budget,
            f"its rounds would cost epsilon {epsilon:.4g} at delta {asked.delta:.3g}, and it was to cost "
            f"{asked.epsilon:g}",
        )
