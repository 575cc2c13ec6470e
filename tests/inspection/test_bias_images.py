"""Laws of the discriminator: it reads releases and public data alone, and finds where serving is denser."""

from typing import Any

import numpy as np
import pytest

from blindsight import data, keys
from blindsight.algorithms.moments import MomentsPart
from blindsight.codings import features
from blindsight.inspection.bias import images as bias_images
from blindsight.inspection.bias.images import GROUPS, Discriminator
from blindsight.inspection.bias.measures import same_clients

KEY = keys.reproducible(0)


@pytest.fixture(scope="module")
def learnt() -> Discriminator:
    """From moments without noise of clients who write all digits, against public ones who never write a 3."""
    serving = data.embedded("handwriting", clients=300, examples=(12, 12))
    public = data.embedded("handwriting", clients=300, seed=1, examples=(12, 12))
    public = same_clients(public, public.columns["label"] != 3)
    chosen = features.images((28, 28), frequencies=25, reference=public.columns["image"])
    part = MomentsPart(chosen, ("learning",), serving.classes["label"])
    shape = part.read(np.full(part.coordinates, 60.0), 0.2)  # of 1,500 clients or so, with little noise
    released = bias_images.public_moments(part, serving, shape, KEY.derive("serving"))
    usual = bias_images.public_moments(part, public.select(np.arange(150)), released, KEY.derive("usual"))
    about: dict[str, Any] = {"steps": 0, "key": KEY, "progress": lambda done, total: None}
    return bias_images.learn(released, part, usual, public.select(np.arange(150, 300)), **about)


@pytest.mark.slow
def test_what_is_missing_in_public_is_what_is_denser_in_serving(learnt):
    found = learnt
    dense = found.group < GROUPS
    assert (found.labels[dense] == 3).mean() > 0.25 > 3 * (found.labels[~dense] == 3).mean()
    described = [found.describe(group, tuple("0123456789")) for group in range(GROUPS)]
    assert "mostly 3" in described
    best = described.index("mostly 3")
    assert found.ratio(best) > 2
    assert found.shown(best).dtype == np.uint8
    assert len(found.shown(best)) == 12


@pytest.mark.slow
def test_real_pictures_are_judged_like_synthetic_ones(learnt):
    found = learnt
    fresh = data.embedded("handwriting", clients=60, seed=2, examples=(12, 12)).columns
    groups, chance = found.score(fresh["image"])
    assert set(np.unique(groups)) <= set(range(GROUPS + 1))
    assert ((chance >= 0) & (chance <= 1)).all()
    is_three = fresh["label"] == 3
    assert (groups[is_three] < GROUPS).mean() > 0.4 > 3 * (groups[~is_three] < GROUPS).mean()


def test_public_moments_get_noise_like_the_released_ones():
    part = MomentsPart(features.images((28, 28), frequencies=25), ("learning",), tuple("0123456789"))
    released = part.read(np.full(part.coordinates, 50.0), 2.0)
    sums = np.full(part.coordinates, 5.0)
    made = bias_images.like_released(sums, released, KEY)
    assert made.noise_std == released.noise_std
    assert np.std(made.sums) == pytest.approx(2.0, rel=0.1)  # of the noise, for all sums were equal
    assert np.mean(made.sums) == pytest.approx(50, rel=0.05)  # brought to the size of the others
