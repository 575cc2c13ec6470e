"""What a client finds out about its unknown words, and the laws of what it sends: bounds, pairs, mirror images."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.unknowns import words as module
from blindsight.inspection.unknowns.words import PLACES, RATES, SIGNS, TRAITS, Rates, SideVotes, Signs, observe, paired

KNOWN = Vocabulary(("i", "have", "a", "cat", "the", "is", "here", "."))
LABELS = ("token_join", "token_join:where=all", "encoding_damage", "truncation", "none")
PARTS = (Rates(), Signs(), SideVotes(LABELS))


def people(**texts: list[str]) -> Population:
    words = [one for some in texts.values() for one in some]
    sizes = [len(some) for some in texts.values()]
    return Population({"text": np.array(words, dtype=TEXT)}, sizes=sizes, ids=list(texts), name="people")


def looked_at(before: list[str], after: list[str]) -> Population:
    return observe(paired(people(one=before), people(one=after)), KNOWN, module.suspects_of(None, "lower"), "lower")


def sent(population: Population, swapped: bool = False) -> dict[str, np.ndarray]:
    """What the only client of `population` sends."""
    fields: dict[str, Any] = {name: jnp.asarray(column) for name, column in population.columns.items()}
    batch = Batch(fields, jnp.ones(population.n_examples, jnp.float32))
    masks = module.ARMS.masks(batch)
    key = jax.random.key(0)
    return {p.name: np.asarray(p.client_part(batch, masks[::-1] if swapped else masks, key)) for p in PARTS}


SOUND, JOINED = "I have a cat.", "I\u00a0have a cat."


def test_a_client_gives_equally_many_sentences_of_both_sides_the_first_ones():
    before = people(ann=["I have.", "A cat.", "The cat."], bob=["Only before."], eve=["I have."])
    after = people(eve=["Is here.", "A cat."], cid=["Only after."], ann=["Cat is.", "Cat here."])
    both = paired(before, after)
    assert both.ids.tolist() == ["ann", "bob", "eve", "cid"]
    assert both.sizes.tolist() == [4, 0, 2, 0]
    assert both["ann"]["text"].tolist() == ["I have.", "A cat.", "Cat is.", "Cat here."]
    assert both["ann"]["side"].tolist() == [0, 0, 1, 1]
    assert both["eve"]["text"].tolist() == ["I have.", "Is here."]
    assert paired(before, after, most=1).sizes.tolist() == [2, 0, 2, 0]


def test_what_is_seen_of_a_sentence():
    row = looked_at([SOUND], ["Here is Käse-2 zzzz\u00a0b."]).columns
    assert row["unknown"].tolist() == [0, 2]
    assert row["words"].tolist() == [5, 5]
    seen = dict(zip(RATES[1:], row["looked"][1].tolist(), strict=True))
    assert [name for name, value in seen.items() if value] == [
        "unknown words at position 3",
        "unknown words at position 4",
        *(f"unknown words with {trait}" for trait in TRAITS),
        "unknown words, the longest of 4-6 letters",
    ]
    assert not row["looked"][0].any()


def test_later_positions_are_counted_together():
    long = looked_at([SOUND], ["cat " * 14 + "zork mork."]).columns["looked"][1]
    assert long[: len(PLACES)].tolist() == [0] * 10 + [1]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_nobody_sends_more_than_the_bound(part):
    """Whatever the examples: also counts that no sentence could have."""
    dice, rows = np.random.default_rng(0), 4
    longest, on_client = 0.0, jax.jit(part.client_part)
    for trial in range(60):
        looked = dice.integers(0, 2, (2 * rows, len(RATES) - 1)).astype(np.uint8)
        if trial % 3 == 0:  # the worst: nothing before, everything after
            looked[:rows], looked[rows:] = 0, 1
        fields: dict[str, Any] = {"looked": jnp.asarray(looked), "side": jnp.repeat(jnp.arange(2), rows)}
        unknown = np.where(np.arange(2 * rows) < rows, 0, 30) if trial % 3 == 0 else dice.integers(0, 30, 2 * rows)
        fields |= {"unknown": jnp.asarray(unknown), "words": jnp.full(2 * rows, 20 if trial % 2 else 30)}
        fields["repaired"] = jnp.asarray(dice.integers(0, 4, (2 * rows, len(LABELS) - 1)))
        batch = Batch(fields, jnp.ones(2 * rows, jnp.float32))
        vector = np.asarray(on_client(batch, module.ARMS.masks(batch), jax.random.key(0)))
        assert vector.shape == (part.coordinates,)
        longest = max(longest, float(np.linalg.norm(vector)))
    assert longest <= part.bound * (1 + 1e-6)
    assert longest >= 0.85 * part.bound  # and not much less is ever enough


def test_who_has_one_side_only_sends_zeros():
    alone = looked_at([SOUND], [JOINED])
    one_side = Population({f: c[1:] for f, c in alone.columns.items()}, sizes=[1], name="half")
    assert all(not vector.any() for vector in sent(one_side).values())


def test_a_join_shows_in_rates_signs_and_votes():
    vectors = sent(looked_at([SOUND, SOUND], [SOUND, JOINED]))
    count = len(RATES)
    before, after = vectors["rates"][:count] + 0.5, vectors["rates"][count : 2 * count] + 0.5
    assert dict(zip(RATES, (after - before).tolist(), strict=True))["unknown words at position 1"] == 0.5
    np.testing.assert_allclose(vectors["rates"][2 * count : 3 * count], (after - before) ** 2 / 2, atol=1e-6)
    up, down = vectors["signs"].reshape(2, -1)
    more = [name for name, value in zip(SIGNS, up, strict=True) if value]
    assert more == [
        "unknown words",
        "unknown first words",
        "unknown words with a space",
        "unknown words with a capital",
    ]
    assert not down.any()
    votes = vectors["votes"].reshape(2, -1)
    assert [LABELS[row.argmax()] for row in votes] == ["none", "token_join"]


def test_sides_that_change_places_send_the_mirror_image():
    """What the tests rest on: nothing in what is sent knows which side is which."""
    population = looked_at([SOUND, "Zork is here."], [JOINED, "A cat mork."])
    straight, mirrored = sent(population), sent(population, swapped=True)
    count = len(RATES)
    np.testing.assert_array_equal(straight["rates"][:count], mirrored["rates"][count : 2 * count])
    np.testing.assert_array_equal(straight["rates"][2 * count :], mirrored["rates"][2 * count :])
    for name in ("signs", "votes"):
        np.testing.assert_array_equal(straight[name].reshape(2, -1), mirrored[name].reshape(2, -1)[::-1])


def test_suspects_are_faults_of_text_and_different():
    assert [str(one) for one in module.suspects_of(None, "lower")] == list(LABELS[:-1])
    assert "case" in [str(one) for one in module.suspects_of(None, "keep")]
    with pytest.raises(InvalidInput, match="is not a fault of words"):
        module.suspects_of(["invert"], "lower")
    with pytest.raises(InvalidInput, match="once"):
        module.suspects_of(["case", "case"], "lower")
