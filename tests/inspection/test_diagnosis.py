"""Votes: clients vote for the fault that repairs them, healthy ones for none, and each has one vote."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import selection
from blindsight.backends import Batch
from blindsight.data import embedded, faults
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.models import MLP
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Primary, primary
from blindsight.selection import Arms, by_accuracy, by_correctness, everything


@pytest.fixture(scope="module")
def model() -> Primary:
    digits = embedded("digits").columns
    trained = fit(
        MLP((8, 8), 10, key=jax.random.key(0)), digits["image"], digits["label"], epochs=10, key=jax.random.key(1)
    )
    return primary(trained, batch_size=200)


@pytest.fixture(scope="module")
def people() -> Population:
    """Sixty clients with ten real digits each."""
    columns = {field: column[:600] for field, column in embedded("digits").columns.items()}
    return Population(columns, sizes=[10] * 60, name="digits", classes={"label": tuple("0123456789")})


def tally(population: Population, model: Primary, arms: Arms) -> dict[str, dict[str, int]]:
    suspects = diagnosis.candidates(population)
    seen = diagnosis.observe(selection.observe(population, model), model, suspects)
    part = diagnosis.votes_part(seen, tuple(arms), disjoint_by_client=arms.disjoint_by_client)
    fields = {name: seen.columns[name].reshape(60, 10, -1).squeeze() for name in ("is_correct", "repaired", "tried")}

    def on_client(fields, weight):
        batch = Batch(fields, weight)
        return part.client_part(batch, arms.masks(batch), jax.random.key(0))

    votes = np.asarray(jax.jit(jax.vmap(on_client))(fields, jnp.ones((60, 10)))).reshape(60, len(arms), -1)
    assert set(np.unique(votes)) <= {0.0, 1.0}
    assert votes.sum(axis=2).max() <= 1
    rows = votes.sum(axis=0).astype(int)
    return {
        arm: {k: n for k, n in zip(part.labels, row, strict=True) if n} for arm, row in zip(arms, rows, strict=True)
    }


@pytest.mark.parametrize("fault", ["invert", "rotate90", "rotate90:turns=3", "flip:axis=vertical", "label_swap"])
def test_clients_name_the_fault_that_hit_them(people, model, fault):
    found = tally(faults.apply(people, fault), model, by_accuracy(0.85, 0.95))["failing"]
    assert max(found, key=lambda name: found[name]) == fault
    assert found[fault] >= (0.8 if fault != "label_swap" else 0.5) * sum(found.values())


def test_healthy_clients_vote_none(people, model):
    found = tally(people, model, Arms({"all": everything()}))["all"]
    assert found.get("none", 0) >= 54


def test_only_failing_examples_are_tried_and_no_more_than_asked_for(people, model):
    seen = selection.observe(faults.apply(people, "invert"), model)
    tried = diagnosis.observe(seen, model, ["invert"], most=3).columns["tried"].reshape(60, 10)
    wrong = ~seen.columns["is_correct"].reshape(60, 10)
    assert not (tried & ~wrong).any()
    np.testing.assert_array_equal(tried.sum(axis=1), np.minimum(wrong.sum(axis=1), 3))
    assert all((tried[c] == (wrong[c] & (np.cumsum(wrong[c]) <= 3))).all() for c in range(60))


def vote(right, repaired, *, weight=None, arms=None, margin=0.15) -> list[list[float]]:
    arms = arms or Arms({"all": everything()})
    size = len(right)
    batch = Batch(
        {
            "is_correct": jnp.asarray(np.array(right, bool)),
            "repaired": jnp.asarray(np.array(repaired, bool)),
            "tried": jnp.asarray(~np.array(right, bool)),
        },
        jnp.ones(size) if weight is None else jnp.asarray(weight, jnp.float32),
    )
    part = VotesPart(("a", "b", "none"), tuple(arms), arms.disjoint_by_client, margin)
    return np.asarray(part.client_part(batch, arms.masks(batch), jax.random.key(0))).reshape(len(arms), 3).tolist()


A, B, NONE, NOTHING = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("right", "repaired", "choice"),
    [
        ([0, 0, 0, 1], [(1, 0), (1, 0), (0, 1), (0, 0)], A),
        ([0, 0, 0, 1], [(0, 1), (1, 1), (0, 1), (0, 0)], B),
        ([0, 0, 1, 1], [(1, 1), (1, 1), (0, 0), (0, 0)], NONE),  # a tie
        ([0, 0, 0, 0, 0], [(1, 0), (1, 0), (0, 0), (0, 0), (0, 0)], NONE),  # less than half is repaired
        ([0] + [1] * 9, [(1, 0)] + [(0, 0)] * 9, NONE),  # one mistake in ten: a gain below the margin
        ([0, 0] + [1] * 8, [(1, 0)] * 2 + [(0, 0)] * 8, A),
        ([1, 1, 1], [(0, 0)] * 3, NONE),
    ],
)
def test_the_rule_of_the_vote(right, repaired, choice):
    assert vote(right, repaired) == [choice]


def test_a_client_without_examples_does_not_vote_and_what_fills_up_has_no_voice():
    assert vote([0, 0], [(1, 0), (1, 0)], weight=[0, 0]) == [NOTHING]
    assert vote([0, 0, 0], [(1, 0), (0, 1), (0, 1)], weight=[1, 0, 0]) == [A]
    assert vote([0, 0, 1], [(1, 0), (1, 0), (0, 0)], arms=by_correctness(1)) == [A, NONE]
    assert vote([0, 0, 1], [(1, 0), (1, 0), (0, 0)], arms=by_correctness(2)) == [A, NOTHING]


def test_candidates_fit_the_fields():
    square = [str(fault) for fault in diagnosis.candidates(embedded("handwriting", clients=2))]
    assert {"invert", "rotate90", "rotate90:turns=2", "rotate90:turns=3", "byte_swap"} <= set(square)
    wide = Population({"image": np.zeros((1, 4, 9), np.uint8)}, sizes=[1], name="wide")
    assert "rotate90" not in [str(fault) for fault in diagnosis.candidates(wide)]
    rows = diagnosis.candidates(embedded("tabular", clients=2), ("age", "sex", "hours"))
    assert {str(fault) for fault in rows if fault.name == "unit_change"} == {
        f"unit_change:field={field}:factor={factor}" for field in ("age", "hours") for factor in (100, 1000)
    }
    with pytest.raises(InvalidInput, match="wide has no field"):
        diagnosis.candidates(wide, "picture")
    with pytest.raises(InvalidInput, match="no fault that can be undone"):
        diagnosis.candidates(Population({"said": np.array(["a"])}, sizes=[1], name="talk"), "said")


def test_a_change_of_units_is_named():
    generator = np.random.default_rng(0)
    height = generator.uniform(0.5, 2.5, 600)
    columns = {"height": height, "age": generator.uniform(20, 60, 600), "label": (height > 1.5).astype(np.int32)}
    rows = Population(columns, sizes=[10] * 60, name="rows", classes={"label": ("short", "tall")})
    tall = primary(lambda x: np.stack([1.5 - x[:, 0], x[:, 0] - 1.5], axis=1), name="ruler")
    wrong = selection.observe(faults.apply(rows, "unit_change:field=height:factor=100"), tall, inputs=("height", "age"))
    suspects = diagnosis.candidates(wrong, ("height", "age"))
    seen = diagnosis.observe(wrong, tall, suspects, inputs=("height", "age"))
    share = seen.columns["repaired"][~seen.columns["is_correct"]].mean(axis=0)
    assert str(suspects[int(share.argmax())]).startswith("unit_change:field=height")
    assert share[[str(one) for one in suspects].index("unit_change:field=height:factor=100")] == 1


def test_what_cannot_be_voted_on_is_refused(people, model):
    with pytest.raises(InvalidInput, match="votes need the primary model's mistakes"):
        diagnosis.observe(people, model, ["invert"])
    seen = selection.observe(people, model)
    with pytest.raises(InvalidInput, match="there is no fault 'inverted': did you mean 'invert'"):
        diagnosis.observe(seen, model, ["inverted"])
    with pytest.raises(InvalidInput, match="blur cannot be undone, so clients cannot vote for it"):
        diagnosis.observe(seen, model, ["invert", "blur"])
    with pytest.raises(InvalidInput, match="different faults"):
        diagnosis.observe(seen, model, ["invert", "invert"])
    with pytest.raises(InvalidInput, match="has no votes"):
        diagnosis.votes_part(seen, ("all",), disjoint_by_client=True)
    with pytest.raises(InvalidInput, match="margin of a vote"):
        VotesPart(("a", "none"), ("all",), True, 0.0)


def test_of_two_classes_no_swap_is_suspected_for_it_would_undo_every_mistake():
    three = embedded("handwriting", clients=2)
    assert "label_swap" in map(str, diagnosis.candidates(three))
    two = three.replace(three.columns)
    two.classes["label"] = ("one", "other")
    assert "label_swap" not in map(str, diagnosis.candidates(two))
