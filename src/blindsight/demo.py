"""`blindsight demo`: a plan, a private release, and a ledger that refuses the next one."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

from blindsight import data, keys, mechanisms, runs, trees
from blindsight.accounting.guarantee import certify
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.errors import BudgetExceeded
from blindsight.participation import full
from blindsight.privacy import Privacy, plan

__all__ = ["Pixels", "demo", "mean_digits"]


@dataclasses.dataclass(frozen=True)
class Pixels:
    """A grey image, shape (height, width) in [0, 1], drawn with half blocks in colour or with characters without."""

    image: np.ndarray

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        image = np.clip(self.image, 0.0, 1.0)
        if console.color_system is None:
            for row in image:
                yield Segment("".join(2 * " .:-=+*#%@"[min(9, int(10 * value))] for value in row) + "\n")
            return
        for above, below in zip(image[::2], image[1::2], strict=True):
            for top, bottom in zip(above, below, strict=True):
                style = Style.parse(
                    f"rgb({','.join([str(int(255 * top))] * 3)}) on rgb({','.join([str(int(255 * bottom))] * 3)})"
                )
                yield Segment("▀▀", style)
            yield Segment("\n")


def mean_digits(images: np.ndarray, labels: np.ndarray, mechanism: mechanisms.GaussianMechanism) -> trees.BoundedSum:
    """The sum over clients of each one's image in the slot of its label: (10, 8, 8), one unit of norm per client."""
    slots = np.zeros((len(images), 10, 8, 8), dtype=np.float32)
    slots[np.arange(len(images)), labels] = images
    bound = 5.0  # public: 64 pixels of at most 1, and hardly a digit is longer than 5
    return trees.sum_clients(slots, bound, n_expected=len(images), grid=mechanism.step(bound))


def demo(*, folder: str | Path = "runs") -> Iterator[RenderableType]:
    """Run the demonstration, yielding what to print as it goes; leaves a run directory in `folder`."""
    yield "[bold]1. Plan.[/] A published run: 1,000 of 250,000 clients a round, noise multiplier 1, 1,000 rounds."
    yield "   What did the paper claim, and what is true?\n"
    yield plan(
        Privacy(population=250_000, cohort=1000, noise_multiplier=1.0, rounds=1000), delta=4e-8, as_published=True
    )
    yield ""

    epsilon, delta = 1.0, 1e-5
    people = data.embedded("digits").columns  # real, one on each client
    images, labels = people["image"], people["label"]
    population = full(len(images))
    noise = solve_noise(lambda z: mechanisms.gaussian(z).event_for(images[0].size * 10), epsilon=epsilon, delta=delta)
    mechanism = mechanisms.gaussian(noise)
    run = runs.create("demo", {"epsilon": epsilon, "delta": delta, "noise_multiplier": noise}, folder=folder)
    ledger = Ledger(run.path / "ledger.db")
    ledger.set_budget("digits", epsilon=epsilon, delta=delta)

    yield f"[bold]2. Release.[/] {len(images):,} clients hold one handwritten digit each, which nobody may look at."
    yield "   The mean image of every digit, from one sum with noise:\n"
    total = mean_digits(images, labels, mechanism)
    guarantee = certify(population.event(mechanism.event(total)), delta=delta)
    run.write("guarantee.json", guarantee.to_dict())
    root = keys.root()
    publish = functools.partial(
        mechanisms.publish,
        mechanism,
        total,
        ledger=ledger,
        population="digits",
        participation=population,
        run=run.path.name,
    )
    release = publish(key=root.derive("noise", 0), note="mean image per digit")
    means = 10 * np.asarray(release.value) * 0.9  # a tenth of the clients hold each digit; 0.9 keeps ink below white
    _save_picture(run.path / "digits.png", images, labels, means)
    yield Pixels(np.concatenate([np.concatenate(list(row), axis=1) for row in (means[:5], means[5:])]))
    yield f"\n   [green]{guarantee}[/]"
    yield f"   [dim]{guarantee.explain()}[/]\n"

    yield "[bold]3. Ledger.[/] The budget of these clients was one release like this. A second one:\n"
    try:
        publish(key=root.derive("noise", 1))
    except BudgetExceeded as refusal:
        yield f"   [red]refused:[/] {refusal}"
    verified = ledger.verify().raise_if_broken()
    yield f"   The ledger's chain of {verified.entries} entries is intact.\n"
    yield f"Everything is in [bold]{run.path}[/]: guarantee.json, ledger.db, and digits.png with the true means above."


def _save_picture(path: Path, images: np.ndarray, labels: np.ndarray, means: np.ndarray) -> None:
    """The true means (simulation only: no client would tell) above the released ones."""
    from PIL import Image

    truth = np.stack([images[labels == digit].mean(axis=0) for digit in range(10)])
    rows = [np.concatenate([np.pad(image, 1) for image in row], axis=1) for row in (truth, means)]
    grey = (255 * np.clip(np.concatenate(rows), 0.0, 1.0)).astype(np.uint8)
    Image.fromarray(grey).resize((12 * grey.shape[1], 12 * grey.shape[0]), Image.Resampling.NEAREST).save(path)
