"""Predictions: as likely as simulated rounds find it, and what was not measured or makes no sense is refused."""

import functools
import shlex
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from blindsight import keys, selection
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Simulation
from blindsight.cli import app
from blindsight.data import embedded, faults
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.contrast import cues, power
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.findings import compare_cues, diagnose
from blindsight.inspection.contrast.power import FAMILIES, HEALTHY, Yardstick, embedded_yardstick, predict
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured, noise_for
from blindsight.models import MLP
from blindsight.models.equinox_models import fit
from blindsight.models.primary import primary
from blindsight.selection import by_accuracy

ABOUT: Any = {"epsilon": 1.0, "delta": 1e-6}


def test_the_bar_inversion_of_one_client_in_twenty_is_found_and_named_at_epsilon_1():
    found = predict(embedded_yardstick(), "invert", 0.05, clients=3400, **ABOUT)
    assert found.by_cues >= 0.9
    assert found.by_votes >= 0.9
    assert found.named == "invert"
    assert found.is_visible
    assert found.smallest_by_votes is not None
    assert found.smallest_by_votes < 0.05


@pytest.mark.parametrize("fault", ["gamma", "byte_swap"])
def test_a_fault_that_does_not_hurt_the_model_shows_in_everyone_alone(fault):
    found = predict(embedded_yardstick(), fault, 0.25, clients=3400, **ABOUT)
    assert found.by_sanity > 0.9
    assert found.by_cues < 0.2
    assert found.by_votes < 0.2


def test_a_quarter_turn_is_named():
    found = predict(embedded_yardstick(), "rotate90", 0.05, clients=3400, **ABOUT)
    assert (found.named, found.by_votes > 0.9) == ("rotate90", True)


def test_less_noise_more_clients_and_more_of_them_hit_are_easier_to_see():
    stick = embedded_yardstick()
    base = predict(stick, "invert", 0.015, clients=1500, **ABOUT)
    for easier in (
        predict(stick, "invert", 0.03, clients=1500, **ABOUT),
        predict(stick, "invert", 0.015, clients=3000, **ABOUT),
        predict(stick, "invert", 0.015, clients=1500, epsilon=2.0, delta=1e-6),
    ):
        assert easier.by_votes > base.by_votes
        assert easier.by_cues > base.by_cues
        assert easier.by_sanity > base.by_sanity
    assert predict(stick, "invert", 1e-6, clients=3400, **ABOUT).by_cues < 0.1
    assert predict(stick, "invert", 0.5, clients=12, **ABOUT).by_votes < 0.01


def test_the_smallest_fraction_is_where_power_passes_nine_in_ten():
    stick = embedded_yardstick()
    found = predict(stick, "invert", 0.05, clients=3400, **ABOUT)
    for word in ("by_sanity", "by_cues", "by_votes"):
        least = getattr(found, f"smallest_{word}")
        assert getattr(predict(stick, "invert", least * 1.02, clients=3400, **ABOUT), word) >= 0.9
        assert getattr(predict(stick, "invert", least * 0.95, clients=3400, **ABOUT), word) < 0.9


@pytest.mark.slow  # how good a prediction is, in 200 rounds of each
@pytest.mark.parametrize(("fault", "fraction"), [("invert", 0.01), ("rotate90", 0.03), ("crop", 0.05)])
def test_simulated_rounds_find_it_as_often_as_predicted(fault, fraction):
    """Sums are drawn around their expectation with noise and with who happens to be hit: the clients are alike here."""
    stick, dice = embedded_yardstick(), np.random.default_rng(1)
    parts = (stick.cues, stick.votes)
    made = noise_for(parts, **ABOUT)
    alone = Cues(stick.cues.names, ("everyone",), True)
    against_public = functools.partial(diagnose, public=stick.usual_votes, public_clients=stick.clients)
    by_sanity = by_cues = by_votes = 0
    for _ in range(200):
        hit = dice.binomial(3400, fraction)
        arms = {}
        for part in parts:
            healthy, faulty = (stick.means[name][part.name] for name in (HEALTHY, fault))
            std = made[part.name].noise_multiplier * part.bound
            sums = (3400 - hit) * healthy + hit * faulty + dice.normal(0, std, healthy.shape)
            arms[part.name] = part.read(Measured(sums, std, 1.0))
            if part is stick.cues:
                together = ((3400 - hit) * healthy + hit * faulty).reshape(len(part.arms), -1).sum(axis=0)
                everyone = alone.read(Measured(together + dice.normal(0, std, together.shape), std, 1.0))["everyone"]
                odd = compare_cues(everyone, stick.reference, epsilon=1.0, looks=FAMILIES)
                by_sanity += any(finding.verdict == "detected" for finding in odd)
        pair = arms["cues"]["failing"], arms["cues"]["healthy"]
        seen = compare_cues(*pair, epsilon=1.0, expected=stick.expected, looks=FAMILIES)
        by_cues += any(finding.verdict == "detected" for finding in seen)
        named = against_public(arms["votes"]["failing"], epsilon=1.0, clients=3400, looks=3 * FAMILIES)[0].fault
        by_votes += named == stick.answer(fault)
    told = predict(stick, fault, fraction, clients=3400, **ABOUT)
    assert by_sanity / 200 == pytest.approx(told.by_sanity, abs=0.15)
    assert by_cues / 200 == pytest.approx(told.by_cues, abs=0.15)
    assert by_votes / 200 == pytest.approx(told.by_votes, abs=0.15)


@pytest.fixture(scope="module")
def digits():
    """Sixty clients of real digits, and a model that reads them."""
    columns = embedded("digits").columns
    model = MLP((8, 8), 10, key=jax.random.key(0))
    model = fit(model, columns["image"], columns["label"], key=jax.random.key(1))
    some = {field: column[:600] for field, column in columns.items()}
    people = Population(some, sizes=[10] * 60, name="digits", classes={"label": tuple("0123456789")})
    return people, primary(model, batch_size=200)


def test_what_clients_would_send_is_what_a_round_adds_up(digits):
    people, model = digits
    arms = by_accuracy(0.7, 0.9)
    seen = selection.observe(faults.apply(people, "invert:0.5"), model)
    seen = cues.observe(diagnosis.observe(seen, model, ["invert", "flip"]), ("image",))
    parts = (
        cues.cues_part(seen, tuple(arms), disjoint_by_client=True),
        diagnosis.votes_part(seen, tuple(arms), disjoint_by_client=True),
    )
    vectors = client_vectors(seen, arms, parts)
    made = noise_for(parts, epsilon=8.0, delta=1e-6)
    found = measuring.measure(
        Simulation(seen), arms, parts, made, clients=60, population="d", delta=1e-6, ledger=Ledger(), key=keys.root()
    )
    for part in parts:
        clean = vectors[part.name].sum(axis=0)
        assert vectors[part.name].shape == (60, part.coordinates)
        assert np.abs(found[part.name].sums - clean).max() < 6 * found[part.name].noise_std
        assert found[part.name].noise_std < 4


def test_a_yardstick_of_ones_own_is_measured_saved_and_read(digits, tmp_path):
    people, model = digits
    stick = power.measure_yardstick(people, model, by_accuracy(0.7, 0.9), ["invert", "blur"], about="sixty people")
    stick.save(tmp_path / "stick.json")
    again = Yardstick.load(tmp_path / "stick.json")
    assert again.faults == ["invert", "blur"]
    assert (again.answer("invert"), again.answer("blur")) == ("invert", None)
    assert (again.cues, again.votes, again.clients, again.about) == (stick.cues, stick.votes, 60, "sixty people")
    np.testing.assert_allclose(again.means["invert"]["votes"], stick.means["invert"]["votes"], atol=1e-6)
    found = predict(again, "blur", 0.3, clients=2000, **ABOUT)
    assert found.named is None
    assert found.by_votes == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inverted", 0.1, 100), "there is no fault 'inverted': did you mean 'invert'"),
        (("missing_fill", 0.1, 100), "no measurement of missing_fill"),
        (("invert", 0.0, 100), "above 0"),
        (("invert", 1.5, 100), "at most 1"),
        (("invert", float("nan"), 100), "above 0"),
        (("invert", 0.5, 1), "at least two clients"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    fault, fraction, clients = arguments
    with pytest.raises(InvalidInput, match=words):
        predict(embedded_yardstick(), fault, fraction, clients=clients, **ABOUT)


def test_the_command_line_says_whether_it_can_be_seen():
    seen = CliRunner().invoke(app, shlex.split("plan --detect invert --population 3400 --epsilon 1 --delta 1e-6"))
    assert seen.exit_code == 0
    assert "3,400 clients suffice to detect invert on 5 % of them" in seen.stdout
    as_json = CliRunner().invoke(app, shlex.split("plan --detect blur --population 3400 --epsilon 1 --json"))
    assert '"named": null' in as_json.stdout
    with pytest.raises(InvalidInput, match="--epsilon"):
        CliRunner().invoke(app, shlex.split("plan --detect invert --population 3400"), catch_exceptions=False)
    with pytest.raises(InvalidInput, match="--cohort"):
        CliRunner().invoke(app, shlex.split("plan --population 3400 --epsilon 1 --rounds 3"), catch_exceptions=False)


def test_a_prediction_prints_what_it_means():
    console = Console(width=120, force_terminal=False)
    with console.capture() as printed:
        console.print(predict(embedded_yardstick(), "crop", 0.001, clients=500, **ABOUT))
    assert "500 clients do not suffice to detect crop on 0.1 % of them" in printed.get()
    assert "Clients would vote for: nothing, because it cannot be undone." in printed.get()
