"""What parties do with their own data: every release is in the ledger first, and no example weighs more than it may."""

import dataclasses
import functools
import importlib
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from sklearn.tree import DecisionTreeClassifier

from blindsight import keys
from blindsight.accounting import accountants
from blindsight.accounting.events import Gaussian, Repeated, Unit, from_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import dp_fedavg, moments
from blindsight.algorithms.bayesian_gan import bayesian_gan
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.draw_and_discard import Task
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.algorithms.parties.generators import OneShot, TrainedPrivately, class_sums
from blindsight.algorithms.parties.party import (
    PartyFailed,
    PartySession,
    Shard,
    SyntheticExamples,
    VotingParty,
    predictor,
)
from blindsight.algorithms.parties.voters import GivenModel, OnRawData, OnSynthetic, PrivateLinear, PrivateNetwork, flat
from blindsight.codings import features
from blindsight.codings.images_and_rows import Images
from blindsight.codings.oriented import oriented_gradients
from blindsight.codings.specs import CategoryField, FeatureSpec, NumberField, Response
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.models.classifiers import Logistic, cross_entropy
from blindsight.models.gan import compact_gan, paper_gan
from blindsight.models.selu_gan import selu_gan
from blindsight.models.vae import elbo, vae
from blindsight.privacy import Privacy
from blindsight.service.export import onnx_model

sys.path.insert(0, str(Path(__file__).parent))
some: Any = importlib.import_module("some_parties")
KEY = keys.reproducible(3)


def bars(seed: int = 0, count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Images of 8 x 8 with a bright half: the left, or the right one."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    images = random.integers(0, 60, (count, 8, 8))
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * label : 4 * label + 4] += 180
    return images.astype(np.uint8), labels


def shard(folder: Path, data: Any = bars, **changes: Any) -> Shard:
    inputs, labels = data()
    return Shard("silo", inputs, labels.astype(np.int32), 2, changes.get("expected", 120), Ledger(folder / "silo.db"))


def recorded(of: Shard) -> list[Any]:
    assert all(entry.unit == Unit.EXAMPLE for entry in of.ledger.entries())
    return [from_json(entry.event) for entry in of.ledger.entries()]


FEATURES = features.images((8, 8), frequencies=9)


# The one-shot generator.


@pytest.mark.parametrize("grid", [None, 2.0**-20])
def test_an_example_adds_at_most_one_to_its_class_and_nothing_to_another(grid):
    images, labels = bars(count=6)
    images[0] = [[255] * 4 + [0] * 4] * 8  # as long as an image can be: a third longer than one part may
    images[1] = 0
    labels[:2] = 0, 1
    lengths: list[float] = []
    whole = class_sums(FEATURES, {"image": images}, labels, 2, grid=grid)
    for row in range(6):
        rest = np.arange(6) != row
        less = class_sums(FEATURES, {"image": images[rest]}, labels[rest], 2, grid=grid)
        moved = (np.asarray(whole.value, np.float64) - np.asarray(less.value, np.float64)) * (grid or 1.0)
        lengths.append(float(np.linalg.norm(moved)))
        assert lengths[-1] <= 1 + (2e-6 if grid is None else 1e-12)
        assert not moved[0, 1 - labels[row]].any()
    assert lengths[0] > 0.99
    assert (whole.l2_bound, whole.n_expected) == (1.0, 1.0)


def test_an_example_less_leaves_the_rounding_of_the_others_as_it_was():
    """The last chunk has one example instead of two: alone it must come out as beside another."""
    images = np.random.default_rng(0).integers(0, 256, (502, 8, 8)).astype(np.uint8)
    labels = np.r_[1, np.zeros(501, int)]
    whole, less = (
        class_sums(FEATURES, {"image": images[first:]}, labels[first:], 2, grid=2.0**-24).value for first in (0, 1)
    )
    assert np.array_equal(whole[0, 0], less[0, 0])


def test_without_noise_the_moments_are_those_of_the_classes():
    """The weight of an example beside its features is the one that `Moments` reads."""
    images, labels = bars()
    total = class_sums(FEATURES, {"image": images}, labels, 2, grid=None)
    found = moments.Moments(FEATURES, np.asarray(total.value, np.float64), 1e-9, ("all",), ("0", "1"))
    phi = np.asarray(FEATURES({"image": jax.numpy.asarray(images)}))
    lengths = np.sqrt(1.16) / np.sqrt(0.16 + np.square(phi).sum(axis=1))
    weight = np.minimum(1, lengths)[:, None]
    for one in (0, 1):
        rows = labels == one
        mean = (weight * phi)[rows].sum(axis=0) / weight[rows].sum()
        assert found.means[0, one] == pytest.approx(mean, abs=1e-4)


def test_the_one_shot_generator_makes_its_classes_from_one_release(tmp_path: Path):
    of = shard(tmp_path)
    made = OneShot(features=FEATURES, noise_multiplier=0.5, steps=0)(of, 41, key=KEY)
    assert made.inputs.shape == (41, 8, 8)
    assert made.inputs.dtype == np.uint8
    assert np.bincount(made.labels).tolist() == [21, 20]
    left = made.inputs[:, :, :4].mean(axis=(1, 2)) > made.inputs[:, :, 4:].mean(axis=(1, 2))
    assert np.mean(left == (made.labels == 0)) > 0.95
    [event] = recorded(of)
    assert isinstance(event, Gaussian)
    assert (event.noise_multiplier, event.reproducible) == (0.5, True)


def test_the_noise_reaches_what_was_released(tmp_path: Path):
    sums: list[np.ndarray] = []
    shape = class_sums(FEATURES, {"image": bars()[0]}, bars()[1], 2, grid=None).value.shape
    of = shard(tmp_path, data=lambda: (np.zeros((0, 8, 8), np.uint8), np.zeros(0, int)))
    for noise in (1.0, 4.0):
        mechanism = importlib.import_module("blindsight.mechanisms.gaussian_mechanism").gaussian(noise)
        total = class_sums(FEATURES, {"image": of.inputs}, of.labels, 2, grid=mechanism.grid(1.0))
        sums.append(np.asarray(of.publish(mechanism, total, key=KEY, note="x").value))
    assert sums[0].shape == shape  # of nothing: noise alone
    assert sums[0].std() == pytest.approx(1.0, rel=0.25)
    assert sums[1].std() == pytest.approx(4.0, rel=0.25)


def test_a_budget_is_kept_before_anything_is_made(tmp_path: Path):
    of = shard(tmp_path)
    of.ledger.set_budget("silo", epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        OneShot(features=FEATURES, noise_multiplier=0.5, steps=0)(of, 4, key=KEY)


# Voters.


def test_a_linear_voter_learns_and_pays_for_all_its_steps_together(tmp_path: Path):
    of = shard(tmp_path, data=lambda: some.blobs(1, 2000), expected=2000)
    made = SyntheticExamples(*some.draw(200, KEY))
    predict = PrivateLinear(noise_multiplier=2.0, steps=25, learning_rate=2.0)(of, made, key=KEY)
    rows, labels = some.blobs(2)
    assert np.mean(predict(rows) == labels) > 0.95
    [event] = recorded(of)
    assert event == Repeated(Gaussian(10.0, reproducible=True, rounded=True), 25)
    once = accountants.epsilon(Gaussian(2.0), 1e-5).epsilon
    assert accountants.epsilon(event, 1e-5).epsilon == pytest.approx(once, rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_one_example_moves_the_sum_of_gradients_by_at_most_the_clip(scale, tmp_path: Path, monkeypatch: Any):
    """Whatever its features: also an outlier, in all steps."""
    sums: list[Any] = []
    mechanisms = importlib.import_module("blindsight.mechanisms.gaussian_mechanism")
    whole = mechanisms.GaussianMechanism.release
    monkeypatch.setattr(
        mechanisms.GaussianMechanism,
        "release",
        lambda self, total, key: (sums.append(total), whole(self, total, key=key))[1],
    )
    rows, labels = some.blobs(1, 50)
    rows[0] *= scale
    made = SyntheticExamples(*some.draw(200, KEY))
    voter = PrivateLinear(noise_multiplier=1e5, steps=3, clip=0.25, learning_rate=0.0)  # so that all see the same model
    for first in (0, 1):
        of = shard(tmp_path / str(first), data=lambda first=first: (rows[first:], labels[first:]))
        voter(of, made, key=KEY)
    assert len(sums) == 6
    for one, two in zip(sums[:3], sums[3:], strict=True):
        assert one.l2_bound == two.l2_bound == 0.25
        assert one.n_expected == two.n_expected == 120  # what is said, not what is there
        moved = (one.value - two.value) * one.grid  # whole numbers: nothing is lost in the order of a sum
        assert one.value.dtype == np.int64
        assert 0.01 < np.linalg.norm(moved) <= 0.25


def test_gradients_on_the_grid_are_those_of_the_formula(tmp_path: Path, monkeypatch: Any):
    """Rounded, clipped and summed in any order, and the sum is close to that of the clipped outer products."""
    sums: list[Any] = []
    mechanisms = importlib.import_module("blindsight.mechanisms.gaussian_mechanism")
    whole = mechanisms.GaussianMechanism.release
    monkeypatch.setattr(
        mechanisms.GaussianMechanism,
        "release",
        lambda self, total, key: (sums.append(total), whole(self, total, key=key))[1],
    )
    rows, labels = some.blobs(1, 300)
    rows *= np.geomspace(0.1, 30, len(rows), dtype=np.float32)[:, None]
    made = SyntheticExamples(*some.draw(200, KEY))
    voter = PrivateLinear(noise_multiplier=2.0, steps=1, clip=0.25)
    for number, order in enumerate((slice(None), slice(None, None, -1))):
        voter(shard(tmp_path / str(number), data=lambda o=order: (rows[o], labels[o])), made, key=KEY)
    assert np.array_equal(sums[0].value, sums[1].value)
    public = flat(made.inputs)
    middle = public.mean(axis=0)
    longest = np.sqrt(np.mean(np.square(public - middle).sum(axis=1)))
    x = np.concatenate([(flat(rows) - middle) / longest, np.full((len(rows), 1), 0.3)], axis=1)
    residual = 0.5 - np.eye(2)[labels]
    gradients = x[:, :, None] * residual[:, None]
    long = np.linalg.norm(gradients, axis=(1, 2))
    expected = np.sum(gradients * np.minimum(1.0, 0.25 / long)[:, None, None], axis=0)
    np.testing.assert_allclose(sums[0].value * sums[0].grid, expected, atol=0.002 * np.sum(np.minimum(0.25, long)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_an_example_that_is_no_number_adds_nothing_and_ends_nothing(bad, tmp_path: Path):
    """If it ended the party's training, whether the party votes would tell that the example is there."""
    rows, labels = some.blobs(1, 50)
    more = np.concatenate([rows, np.full((1, 4), bad, np.float32)]), np.append(labels, 1)
    made = SyntheticExamples(*some.draw(200, KEY))
    voter = PrivateLinear(noise_multiplier=1.0, steps=3)
    one, two = (
        voter(shard(tmp_path / str(number), data=lambda held=held: held), made, key=KEY)
        for number, held in enumerate([(rows, labels), more])
    )
    questions, _ = some.draw(500, KEY.derive("questions"))
    assert np.array_equal(one(questions), two(questions))


def test_a_voter_on_made_examples_does_not_look_at_the_shard(tmp_path: Path):
    made = SyntheticExamples(*some.draw(200, KEY))
    nothing = shard(tmp_path, data=lambda: (np.zeros((0, 4), np.float32), np.zeros(0, int)))
    predict = OnSynthetic(estimator=some.Nearest())(nothing, made, key=KEY)
    assert np.mean(predict(made.inputs) == made.labels) > 0.9
    assert recorded(nothing) == []


def test_only_models_of_raw_data_are_not_private():
    assert PrivateLinear(noise_multiplier=1.0).is_private
    assert OnSynthetic(estimator=None).is_private
    assert GivenModel(model=abs, event=Gaussian(1.0)).is_private
    assert not GivenModel(model=abs).is_private
    assert not OnRawData(estimator=None).is_private
    with pytest.raises(TypeError):
        OnRawData(estimator=None, is_private=True)  # pyright: ignore[reportCallIssue]


def test_a_model_trained_elsewhere_is_paid_for(tmp_path: Path):
    of = shard(tmp_path)
    GivenModel(model=lambda x: np.zeros(len(x), int), event=Gaussian(3.0))(
        of, SyntheticExamples(*bars()), key=keys.root()
    )
    assert recorded(of) == [Gaussian(3.0)]


# Training by rounds: a network that votes, an autoencoder that generates.

OPTIMIZERS: Any = {"client_optimizer": optax.sgd(0.01), "server_optimizer": optax.sgd(1.0)}
PRIVACY = Privacy(population=120, cohort=40, rounds=3, noise_multiplier=0.5, clip=1.0)


def network(privacy: Privacy) -> Any:
    model = Logistic((8, 8), 2, key=jax.random.key(0))
    return dp_fedavg(model, cross_entropy(), privacy, **OPTIMIZERS, batch_size=1)


def autoencoder(privacy: Privacy) -> Any:
    model = vae(Images(8, 8), classes=2, latents=2, channels=(4,), key=jax.random.key(0))
    return dp_fedavg(model, elbo(), privacy, **OPTIMIZERS, batch_size=1)


SERVER: Any = {
    "critic_optimizer": optax.sgd(1.0),
    "generator": GeneratorSteps(optimizer=optax.sgd(0.1), batch_size=4, steps=1),
}


def gan(privacy: Privacy) -> Any:
    pair = compact_gan(Images(8, 8), classes=2, latents=2, channels=(4,), width=16, key=jax.random.key(0))
    return dp_fedavg_gan(pair, privacy, **SERVER, critic_rate=0.01, batch_size=1, critic_steps=1)


def dcgan(privacy: Privacy) -> Any:
    pair = paper_gan(Images(8, 8), latents=2, key=jax.random.key(0))
    return dp_fedavg_gan(pair, privacy, **SERVER, critic_rate=0.01, batch_size=1, critic_steps=1)


def wgan(privacy: Privacy) -> Any:
    pair = selu_gan(Images(8, 8), classes=2, latents=2, channels=(4, 4, 4), hidden=4, key=jax.random.key(0))
    return bayesian_gan(pair, privacy, **SERVER, fakes=4)


def drawn(model: Any, count: int, key: keys.Key) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % 2
    asked: Any = {"labels": jax.numpy.asarray(labels)} if model.classes else {}  # of a DCGAN, any class will do here
    return model.coding.decode(model.sample(count, key=key.jax(), **asked))["image"], labels


def check_rounds(event: Any) -> None:
    assert event.count == 3
    assert (event.event.population, event.event.event.noise_multiplier) == (120, 0.5)
    assert event.event.event.reproducible


def test_a_network_trains_on_examples_as_clients(tmp_path: Path):
    of = shard(tmp_path)
    predict = PrivateNetwork(make=network, privacy=PRIVACY)(of, SyntheticExamples(*bars()), key=KEY)
    assert set(predict(of.inputs)) <= {0, 1}
    [event] = recorded(of)
    check_rounds(event)


@pytest.mark.slow
@pytest.mark.parametrize("make", [autoencoder, gan, dcgan, wgan])
def test_any_generator_trains_on_examples_as_clients(make, tmp_path: Path):
    of = shard(tmp_path)
    made = TrainedPrivately(make=make, draw=drawn, privacy=PRIVACY)(of, 10, key=KEY)
    assert made.inputs.shape == (10, 8, 8)
    assert made.labels.tolist() == [0, 1] * 5
    [event] = recorded(of)
    check_rounds(event)


def test_the_number_of_examples_that_rounds_draw_from_is_the_public_one(tmp_path: Path):
    of = shard(tmp_path, expected=200)
    assert of.population().size == 200
    assert of.population().n_examples == 120
    with pytest.raises(InvalidInput, match=r"party silo declares 200 examples"):
        PrivateNetwork(make=network, privacy=PRIVACY)(of, SyntheticExamples(*bars()), key=KEY)
    assert recorded(of) == []


def test_more_examples_than_were_said_are_refused_before_anything_is_paid(tmp_path: Path):
    """Cut off after the hundredth, one that is removed would let another in: two changes, paid for as one."""
    of = shard(tmp_path, expected=119)
    with pytest.raises(PartyFailed, match="more examples than the 119 it declared"):
        PrivateNetwork(make=network, privacy=dataclasses.replace(PRIVACY, population=119))(
            of, SyntheticExamples(*bars()), key=KEY
        )
    assert recorded(of) == []


# A party.


def test_a_party_votes_after_it_has_made_its_examples(tmp_path: Path):
    session = PartySession(some.party(0, tmp_path))
    with pytest.raises(PartyFailed, match="ask for samples first"):
        session.votes(np.zeros((1, 4)), cost=None, unprotected=False)


def test_a_seed_never_gives_the_same_noise_for_two_sums(tmp_path: Path):
    """The difference of two releases would be without any; a fresh ledger on the same data is the same run again."""
    shorter = functools.partial(some.blobs, 0, 199)
    first = PartySession(some.party(0, tmp_path)).key
    assert PartySession(some.party(0, tmp_path / "elsewhere")).key == first
    assert PartySession(some.party(0, tmp_path, data=shorter)).key != first
    PartySession(some.party(0, tmp_path)).samples(3)
    assert PartySession(some.party(0, tmp_path)).key != first


def test_a_party_without_a_seed_draws_from_the_system(tmp_path: Path):
    one, two = (PartySession(some.party(0, tmp_path, seed=None)).key for _ in range(2))
    assert one != two
    assert not one.is_reproducible


@pytest.mark.parametrize("bad", [{"name": " "}, {"classes": ("a",)}, {"classes": ("a", "a")}, {"examples": 0}])
def test_a_party_that_makes_no_sense_is_refused(bad, tmp_path: Path):
    with pytest.raises(InvalidInput):
        some.party(0, tmp_path, **bad)
    assert isinstance(some.party(0, tmp_path), VotingParty)


def test_any_model_predicts():
    images, _ = bars(count=5)
    for model in (
        Logistic((8, 8), 2, key=jax.random.key(0)),
        lambda x: np.eye(2)[np.zeros(len(x), int)],
        lambda x: np.zeros(len(x), int),
        some.Nearest().fit(flat(images), np.array([0, 1, 0, 1, 0])),
    ):
        found = predictor(model)(images)
        assert found.shape == (5,)
        assert set(found) <= {0, 1}
    tree = DecisionTreeClassifier().fit(images.reshape(5, -1), np.array([0, 1, 0, 1, 0]))
    assert predictor(tree)(images).tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(InvalidInput, match="a model must be an estimator"):
        predictor(3)
    with pytest.raises(InvalidInput, match="there is no model"):
        predictor("nowhere.onnx")


def test_an_onnx_file_votes_and_what_it_cannot_read_is_no_vote(tmp_path: Path):
    """Whether 255 or 1 is white nobody has said: its scores would be no numbers, and the first class would win."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    fields, answer = (
        FeatureSpec((NumberField("a", 0, 1), NumberField("b", 0, 1), NumberField("c", 0, 1))),
        CategoryField("y", ("l", "r")),
    )
    about: dict[str, Any] = {"family": "multinomial", "features": fields, "response": Response(answer)}
    task = Task(model="m", unit="model", epsilon=1.0, **about)
    weights = np.zeros((2, fields.width))
    weights[1, 0] = 1.0  # the second class where the first number is above 0
    (tmp_path / "m.onnx").write_bytes(onnx_model(task, weights.ravel()))
    rows = np.array([[-1, 0, 0, 0], [1, 0, 0, 0]], np.float32)[:, : fields.width]
    of = shard(tmp_path)
    for file in (tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        predict = GivenModel(model=file, event=Gaussian(3.0))(of, SyntheticExamples(*bars()), key=keys.root())
        assert predict(rows).tolist() == [0, 1]
        with pytest.raises(InvalidInput, match=r"m.onnx did not return a finite score per class: if it reads floats"):
            predict(np.ones((2, fields.width), np.uint8))
    assert recorded(of) == [Gaussian(3.0)] * 2


def test_bytes_are_read_as_numbers_from_0_to_1():
    assert flat(np.full((2, 2, 2), 255, np.uint8)).tolist() == [[1.0] * 4] * 2


# The features.


def test_oriented_gradients_know_which_way_edges_point():
    across, down = np.zeros((2, 1, 28, 28), np.uint8)
    across[:, :, 14:] = 255
    down[:, 14:] = 255
    found = oriented_gradients(np.concatenate([across, down]))
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1])
    strength = np.square(found).reshape(2, 8, 49).sum(axis=2)
    assert strength[0].argmax() != strength[1].argmax()
    assert found[0] @ found[1] < 0.3
    turned = oriented_gradients(np.swapaxes(across, 1, 2))
    assert turned[0] == pytest.approx(found[1], abs=1e-6)


def test_an_image_without_edges_has_no_direction_and_nan_free_features():
    assert not oriented_gradients(np.zeros((1, 28, 28))).any()
    assert math.isfinite(float(oriented_gradients(np.full((1, 28, 28), 7, np.uint8)).sum()))
    with pytest.raises(InvalidInput, match="grey images"):
        oriented_gradients(np.zeros((1, 28, 28, 3)))


def test_features_of_an_image_do_not_depend_on_the_others():
    images = np.random.default_rng(0).integers(0, 255, (5, 28, 28)).astype(np.uint8)
    assert oriented_gradients(images)[3] == pytest.approx(oriented_gradients(images[3:4])[0], abs=1e-6)
