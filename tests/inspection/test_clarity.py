"""Samples that show nothing say so: the ratio is unbiased, and warnings appear with the samples and only where due."""

import functools
import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from flat import ask

from blindsight import data, inspect, keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import moments
from blindsight.inspection.contrast.question import Training
from blindsight.inspection.report import Report
from blindsight.samples import clarity
from blindsight.samples.views import ArmView

WORDS = "little but noise"


@pytest.fixture(scope="module", autouse=True)
def quick_fit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "fit", functools.partial(moments.fit, steps=0))
        yield


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_the_ratio_is_that_of_signal_to_noise(ratio):
    dice = np.random.default_rng(0)
    signal = dice.standard_normal(40_000)
    released = 7 * (ratio * signal + dice.standard_normal(40_000))
    assert clarity.signal_to_noise(released, 7.0) == pytest.approx(ratio, rel=0.05)


def test_noise_alone_has_no_signal_and_no_noise_is_all_signal():
    assert clarity.signal_to_noise(np.random.default_rng(0).standard_normal(40_000), 1.0) < 0.15
    assert clarity.signal_to_noise(np.ones(3), 0.0) == math.inf
    assert clarity.training_signal(0.0, weights=10, cohort=5, rounds=3) == math.inf
    assert clarity.training_signal(2.0, weights=100, cohort=40, rounds=25) == pytest.approx(10)


def test_the_warning_is_of_samples_below_the_limit_only():
    assert WORDS in clarity.warning(clarity.LEAST - 0.01)
    assert clarity.warning(clarity.LEAST) == clarity.warning(None) == ""
    assert ArmView("empty", signal_to_noise=0.1).warning == ""
    for ratio in (0.1, math.inf):
        arm = ArmView("all", rows={"age": np.arange(3)}, signal_to_noise=ratio)
        back = ArmView.from_dict(json.loads(json.dumps(arm.to_dict())))
        assert (back.signal_to_noise, back.warning) == (ratio, arm.warning)


def labelled(folder, clients: int, epsilon: float, training: Training | None = None) -> Report:
    people = data.embedded("handwriting", clients=clients, examples=(8, 9))
    about = {"out": folder / "run", "ledger": Ledger(folder / "ledger.db"), "key": keys.reproducible(2)}
    about |= {"samples": 10, "training": training}
    return ask(inspect.labelling, people, epsilon=epsilon, delta=1e-6, **about)


def test_images_of_few_clients_say_that_they_show_noise(tmp_path):
    report = labelled(tmp_path, 100, 2.0)
    assert report.arms[0].samples is not None
    assert WORDS in " ".join(str(report).split())
    assert WORDS in report.to_html()
    assert WORDS in json.loads((tmp_path / "run" / "report.json").read_text())["arms"][0]["warning"]
    assert WORDS in (tmp_path / "run" / "samples" / "README.md").read_text()


@pytest.mark.slow
def test_images_of_many_clients_do_not(tmp_path):
    report = labelled(tmp_path, 150, 100.0)
    assert report.arms[0].signal_to_noise is not None
    assert report.arms[0].signal_to_noise > 5
    assert WORDS not in str(report)
    assert WORDS not in report.to_html()


@pytest.mark.slow
def test_a_generator_trained_under_much_noise_says_so(tmp_path):
    training = Training(rounds=2, cohort=20, batch_size=4, generator_steps=1)
    assert WORDS in labelled(tmp_path, 40, 1.0, training).arms[0].warning
