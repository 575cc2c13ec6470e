"""What notebooks show: guarantees, plans, ledgers, populations and reports, escaped, with what they say in text."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from blindsight import Privacy, plan
from blindsight.accounting.events import Gaussian
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.statement import Statement
from blindsight.data.population import Population

EVIL = "<script>alert('x')</script>&\""


class Tags(HTMLParser):
    """Every tag that a browser would find, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.text = list[str](), ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        del attrs
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def shown(thing) -> str:
    found = Tags(thing._repr_html_())
    assert set(found.tags) <= {
        "div",
        "p",
        "strong",
        "span",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "ul",
        "li",
    }
    return re.sub(r"\s+", " ", found.text)


def test_a_guarantee_says_what_it_rests_on():
    promise = certify(Gaussian(2.0), delta=1e-6, assumptions=(EVIL,))
    text = shown(promise)
    assert f"epsilon = {str(promise).split(',')[0].strip('(')} at delta = 1e-06" in text
    for one in promise.assumptions:
        assert one in text
    none = Guarantee(epsilon=np.inf, delta=0.0, accountant="", participation=EVIL, releases=1)
    assert "no privacy guarantee" in shown(none)


def test_a_plan_shows_the_same_noise_under_every_participation():
    privacy = Privacy(population=1000, cohort=10, rounds=2, noise_multiplier=2.0)
    text = shown(plan(privacy, delta=1e-5, as_published=True))
    for name in ("poisson", "fixed", "full", "unproven", "as published"):
        assert name in text


@pytest.mark.parametrize("name", ["clinic", EVIL])
def test_ledgers_and_populations(tmp_path, name):
    ledger = Ledger(tmp_path / "ledger.db")
    assert "no entries yet" in shown(ledger)
    ledger.set_budget(name, epsilon=3.0, delta=1e-6)
    ledger.record(Gaussian(8.0), population=name, note="a mean")
    assert name in shown(ledger)
    assert "% left" in shown(Statement.of(ledger))
    people = Population({name: np.zeros((3, 2))}, sizes=[1, 2], name=name)
    assert "2 clients, 3 examples, real data; simulation_only" in shown(people)
