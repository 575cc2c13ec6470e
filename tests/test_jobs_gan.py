"""Laws of a generator's run: what it leaves, both accountants side by side, and that going on changes neither."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pyarrow.parquet as pq
import pytest

from blindsight import config, runs
from blindsight.accounting.bayesian import BayesianAccountant
from blindsight.backends import Batch
from blindsight.backends.paired import bayesian_config
from blindsight.codings.images_and_rows import Images
from blindsight.data import embedded
from blindsight.errors import InvalidInput
from blindsight.jobs import train as jobs
from blindsight.jobs.algorithm import given_privacy, make_algorithm, make_privacy
from blindsight.jobs.classes import READ_OFF, assumed_classes
from blindsight.jobs.gan import gan_algorithm, gan_metrics, make_gan, save_samples
from blindsight.jobs.tasks import classification_task
from blindsight.models.gan import GAN
from blindsight.samples.synthetic_set import read_set
from blindsight.training import Trained

TABLE: dict[str, Any] = {
    "name": "made",
    "seed": 1,
    "data": {"population": "digits", "held_out": 0.0},
    "model": {"kind": "gan"},
    "gan": {"network": "compact", "channels": [2, 2, 2], "latents": 2, "fakes": 2, "generator_batch_size": 2},
    "server": {"optimizer": "adam", "learning_rate": 1e-3},
    "privacy": {"unit": "example", "noise_multiplier": 2.0, "delta": 1e-5, "cohort": 4, "rounds": 3, "clip": 0.5},
    "bayesian": {"pairs": 4},
    "training": {"checkpoint_every": 2},
}


def changed(**tables: Any) -> config.Config:
    table = json.loads(json.dumps(TABLE))
    for name, values in tables.items():
        table[name] = {**table.get(name, {}), **values}
    return config.parse(table)


@pytest.fixture(scope="module")
def digits():
    return embedded("digits")


def test_both_accountants_stand_side_by_side_and_a_run_that_goes_on_is_accounted_for_as_a_whole(digits, tmp_path):
    out = tmp_path / "run"
    model = {"model": {"kind": "logistic"}, "server": {"optimizer": "sgd"}}
    first = jobs.run_training(changed(**model), out=out, population=digits)
    run = runs.open_run(out)
    assert first.bayesian is not None
    assert first.bayesian.classical == first.guarantee
    assert first.to_dict()["bayesian"]["classical"] == first.guarantee.to_dict()
    for number, row in enumerate(run.rows("metrics.jsonl"), 1):
        assert (row["round"], row["simulation_only"]["pairs"]) == (number, 4)
        assert 0 < row["simulation_only"]["largest_distance"] <= 0.5 / 4
        assert not {"pairs", "largest_distance", "bayesian"} & set(row)  # only under the mark
    kept = run.read("bayesian.json")
    assert kept["simulation_only"] is True
    assert kept["informal"]["classical"]["epsilon"] == first.guarantee.epsilon
    assert {"pairs", "largest_distance", "simulation_only"} <= set(kept["informal"])
    assert "diagnostic, not a guarantee" in kept["in_words"]
    assert "bayesian" not in json.dumps(run.read("guarantee.json"))

    # more rounds, after a crash that lost the last one: rounds that are repeated are counted once
    (out / "checkpoint-00000003.safetensors").unlink()
    longer = changed(**model, privacy={"rounds": 4})
    more = jobs.run_training(longer, out=out, population=digits)
    rows = run.rows("bayesian.jsonl")
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    fresh = BayesianAccountant(bayesian_config(given_privacy(longer, digits.n_examples)))
    for row in rows:
        fresh.record(row["simulation_only"]["distances"])
    assert more.bayesian == fresh.report(delta=1e-10, classical=more.guarantee)

    whole = (out / "bayesian.jsonl").read_text().splitlines(keepends=True)
    (out / "bayesian.jsonl").write_text("".join(whole[1:]))
    with pytest.raises(InvalidInput, match="lacks the pairs of some of the 4 rounds"):
        jobs.run_training(longer, out=out, population=digits)


class Bright(eqx.Module):
    """A critic that adds up the pixels."""

    def __call__(self, x, labels, weight):
        return jnp.sum(x, axis=(1, 2, 3))


class Grey(eqx.Module):
    """A generator of images in one grey for each class."""

    def __call__(self, latents, labels):
        return jnp.broadcast_to(labels.astype(jnp.float32)[:, None, None, None] / 10, (len(labels), 8, 8, 1))


def test_samples_are_of_every_class_in_turn_and_under_the_runs_guarantee(digits, tmp_path):
    gan = GAN(Grey(), Bright(), Images(8, 8), 2, 10)
    guarantee = given_privacy(changed(), 1797).guarantee(delta=1e-5)
    trained = Trained(gan, guarantee, 3, "finished", {}, tmp_path)
    save_samples(changed(gan={"samples": 20}), trained, digits.classes["label"])
    assert read_set(tmp_path / "samples").guarantee == guarantee
    assert pq.read_table(tmp_path / "samples" / "samples.parquet")["class"].to_pylist() == [*range(10)] * 2
    assert (tmp_path / "samples.png").stat().st_size > 100
    batch = Batch({"image": jnp.full((2, 8, 8), 255, jnp.uint8), "label": jnp.array([0, 5])}, jnp.ones(2))
    assert float(gan_metrics()["margin"](gan, batch, jax.random.key(0))) == pytest.approx(64 * 0.75)


@pytest.mark.parametrize(
    "listed", [{}, pytest.param({"classes": ["1", "0"]}, marks=pytest.mark.slow)], ids=["read off", "listed"]
)
def test_samples_carry_no_name_of_a_class_that_the_guarantee_is_silent_about(digits, listed, tmp_path):
    """A loader reads names off clients' data: without a list they are published under an assumption."""
    short = changed(
        data={"population": "scans"}, model=listed, gan={"samples": 4}, privacy={"rounds": 1, "sampler": "float"}
    )
    trained = jobs.run_training(
        dataclasses.replace(short, bayesian=None), out=tmp_path / "run", population=digits.select(range(60))
    )
    made = read_set(tmp_path / "run")
    assert made.guarantee == trained.guarantee
    assert (made.classes, READ_OFF in made.guarantee.assumptions) == (
        (("1", "0"), False) if listed else (digits.classes["label"], True)
    )
    assert trained.model.classes == len(made.classes)


def test_a_generator_that_is_told_no_class_says_nothing_about_classes(digits):
    nameless = changed(data={"population": "scans"}, gan={"classes": False})
    assert assumed_classes(nameless, digits) == ()
    task = classification_task(changed(model={"classes": ["0", "1"]}), digits, digits, None)
    assert task.clients.size == digits.n_examples  # how many there are is public: who is of no class keeps a place
    assert 0 < task.clients.n_examples < digits.n_examples


def test_samples_that_people_have_labelled_are_not_overwritten(digits, tmp_path):
    """A run that goes on would leave labels without their examples."""
    guarantee = given_privacy(changed(), 1797).guarantee(delta=1e-5)
    trained = Trained(GAN(Grey(), Bright(), Images(8, 8), 2, 10), guarantee, 3, "finished", {}, tmp_path)
    save_samples(changed(gan={"samples": 20}), trained, digits.classes["label"])
    (tmp_path / "samples" / "labels.jsonl").touch()
    save_samples(changed(gan={"samples": 30}), trained, digits.classes["label"])
    assert len(read_set(tmp_path).samples) == 20


def test_the_pair_is_as_asked_and_its_noise_is_exact(digits):
    asked = changed(gan={"network": "selu", "channels": [2, 3, 4], "hidden": 5, "classes": False})
    gan = make_gan(asked, digits)
    assert (gan.classes, gan.latents, gan.coding.shape) == (0, 2, (8, 8, 1))
    assert gan.critic.dense.weight.shape == (4, 5)
    assert make_gan(changed(), digits).classes == 10
    task = classification_task(changed(), digits, digits, None)
    privacy = make_privacy(changed(), task.clients.size)
    event: Any = make_algorithm(changed(), task.model, privacy).event
    assert event.rounded


@pytest.mark.parametrize(
    ("server", "twin"),
    [
        ({"optimizer": "nesterov", "learning_rate": 0.5}, optax.sgd(0.5, momentum=0.9, nesterov=True)),
        ({"optimizer": "sgd", "learning_rate": 0.5}, optax.sgd(0.5)),
        ({"optimizer": "adam", "learning_rate": 0.5}, optax.adam(0.5)),  # as in the paper
    ],
    ids=["nesterov", "sgd", "adam"],
)
def test_the_critic_is_trained_by_the_optimiser_that_server_names(digits, monkeypatch, server, twin):
    """Nesterov's momentum is not plain momentum, for GANs either."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr("blindsight.jobs.gan.bayesian_gan", lambda *_, **named: seen.update(named))
    gan_algorithm(changed(server=server), make_gan(changed(), digits), given_privacy(changed(), 1797), sampler="exact")
    critic, parameters = seen["critic_optimizer"], jnp.float32(0)
    with jax.numpy_dtype_promotion("standard"):  # Optax counts its steps in whole numbers
        states = [optimizer.init(parameters) for optimizer in (critic, twin)]
        for gradient in (jnp.float32(0.3), jnp.float32(-0.1), jnp.float32(0.2)):
            (step, first), (expected, second) = (
                optimizer.update(gradient, state) for optimizer, state in zip((critic, twin), states, strict=True)
            )
            states = [first, second]
            assert float(step) == float(expected)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"privacy": {"adaptive_clip": 0.5}}, "adaptive_clip is not for a gan"),
        ({"audit": {"one_run": 10}}, "audited from Python"),
        ({"client": {"epochs": 2}}, "epochs must be 1"),
        ({"gan": {"channels": []}}, "at least one size"),
        ({"gan": {"average": 1.0}}, r"average must be in \[0, 1\)"),
        ({"bayesian": {"pairs": 1}}, "pairs must be at least 2"),
        ({"privacy": {"participation": "fixed"}}, r"\[bayesian\] needs poisson"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tables, words):
    with pytest.raises(InvalidInput, match=words):
        changed(**tables)


def test_data_that_do_not_fit_are_refused(digits):
    rows = embedded("tabular", clients=3)
    with pytest.raises(InvalidInput, match="names the field 'image'"):
        make_gan(changed(), rows)
    with pytest.raises(InvalidInput, match="a gan makes images"):
        make_gan(changed(model={"inputs": ["label"]}), digits)
    nameless = dataclasses.replace(changed(), model=config.ModelSettings(kind="gan", label="image"))
    with pytest.raises(InvalidInput, match="needs named classes"):
        make_gan(nameless, digits)
