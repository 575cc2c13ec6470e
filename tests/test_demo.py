"""The demonstration: what it shows is true, and it leaves what it says it leaves."""

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from blindsight import data, mechanisms, runs
from blindsight.accounting.ledger import Ledger
from blindsight.demo import Pixels, demo, mean_digits


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    console = Console(width=100, record=True, color_system=None, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in demo(folder=folder):
        console.print(part)
    console.file.close()
    return console.export_text(), runs.find(folder)[0]


def test_it_plans_releases_and_refuses(shown):
    text, run = shown
    for words in ("1.033", "10.12 to 17.40", "2.38", "(1.000, 1e-05)-DP per client", "refused:", "intact"):
        assert words in text, words
    assert run.read("guarantee.json")["epsilon"] <= 1.0
    ledger = Ledger(run.path / "ledger.db")
    assert [entry.kind for entry in ledger.entries()] == ["budget", "release"]  # the refused one left nothing
    assert ledger.spent("digits").epsilon <= 1.0


def test_the_picture_has_the_digits_in_it(shown):
    picture = np.asarray(Image.open(shown[1].path / "digits.png"), dtype=np.float64)
    height, width = picture.shape
    truth, released = picture[: height // 2], picture[height // 2 :]
    assert width > height
    assert np.corrcoef(truth.ravel(), released.ravel())[0, 1] > 0.85  # recognisable...
    assert not np.array_equal(truth, released)  # ...and noised


def test_one_client_moves_the_sum_by_at_most_its_bound():
    images, labels = data.embedded("digits").columns.values()
    mechanism = mechanisms.gaussian(4.0)
    everyone = mean_digits(images, labels, mechanism)
    without = mean_digits(images[1:], labels[1:], mechanism)
    steps = (everyone.value - without.value).astype(object)  # Python integers: exact
    assert everyone.grid is not None
    assert 0 < sum(int(step) ** 2 for step in steps.ravel()) <= (everyone.l2_bound / everyone.grid) ** 2


def test_pixels_are_drawn_with_and_without_colour():
    image = np.linspace(0, 1, 16).reshape(4, 4)
    plain, colour = (
        Console(color_system=None, width=40),
        Console(color_system="truecolor", width=40, force_terminal=True),
    )
    with plain.capture() as grey, colour.capture() as bright:
        plain.print(Pixels(image))
        colour.print(Pixels(image))
    assert len(grey.get().splitlines()) == 4
    assert bright.get().count("▀") == 16
