"""`blindsight plan`: privacy arithmetic, and whether an inspection could show a fault, before anything is spent."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from blindsight.cli.describing import TYPES, described
from blindsight.cli.expanding import expanded
from blindsight.cli.printing import AsJson, flag, print_json, print_value, working
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.privacy import Plan, Privacy

__all__ = ["delta_value", "plan", "whole_number"]

_USUAL_FRACTION = 0.05


def whole_number(text: str) -> int:
    """`250000`, `250_000`, `250,000`, `2.5e5`, `250k`, `4M`."""
    factor = {"k": 1e3, "K": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    try:
        value = float((text[:-1] if factor > 1 else text).replace(",", "").replace("_", "")) * factor
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error
    if not math.isfinite(value) or abs(value - round(value)) > 1e-6 or value < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of at least 1")
    return round(value)


def delta_value(text: str, population: int) -> float:
    """`1e-6`, `1/N`, `N^-1.1`, with N the population."""
    try:
        if text.startswith("N^"):
            return float(population) ** float(text[2:])
        if text.endswith("/N"):
            return float(text[:-2]) / population
        return float(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"delta must be a number, 1/N or N^-1.1, got {text!r}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """Options that say which rounds are planned."""

    population: Annotated[int, typer.Option(parser=whole_number, help="Number of clients (250000, 250k, 4M).")]
    cohort: Annotated[int | None, typer.Option(parser=whole_number, help="Clients per round, expected or exact.")] = (
        None
    )
    delta: Annotated[str, typer.Option(help="Delta of the guarantee: a number, 1/N or N^-1.1.")] = "N^-1.1"
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise standard deviation over clip; solved for if left out.")
    ] = None
    rounds: Annotated[
        int | None, typer.Option(parser=whole_number, help="Number of rounds; solved for if left out.")
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon; noise or rounds are solved for.")] = None
    participation: Annotated[str, typer.Option(help="poisson, fixed, full or unproven.")] = "poisson"
    max_participations: Annotated[
        int | None, typer.Option(parser=whole_number, help="Largest number of rounds a client can be in (unproven).")
    ] = None

    def privacy(self, delta: float) -> "Privacy":
        """The privacy of these rounds, with noise or rounds solved for."""
        from blindsight.privacy import Privacy

        if self.cohort is None:
            raise InvalidInput("give the number of clients per round with --cohort")
        if sum(value is not None for value in (self.noise_multiplier, self.rounds, self.epsilon)) != 2:
            raise InvalidInput(
                "give exactly two of --noise-multiplier, --rounds and --epsilon; the third is solved for"
            )
        privacy = Privacy(
            population=self.population,
            cohort=self.cohort,
            rounds=self.rounds or 1,
            noise_multiplier=self.noise_multiplier,
            participation=self.participation,  # pyright: ignore[reportArgumentType]  (Privacy refuses an unknown one)
            max_participations=self.max_participations,
        )
        if self.epsilon is not None and self.rounds is None:
            return privacy.calibrate_rounds(epsilon=self.epsilon, delta=delta)
        return privacy if self.epsilon is None else privacy.calibrate(epsilon=self.epsilon, delta=delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """Options that add something to the answer."""

    as_published: Annotated[bool, flag("--as-published", "Add the epsilon that the papers' arithmetic gives.")] = False
    group: Annotated[int, typer.Option(min=1, help="Also state the guarantee for groups of this many clients.")] = 1
    adaptive_clipping: Annotated[
        bool, flag("--adaptive-clipping", "Show how to split the noise with an adaptive clip.")
    ] = False
    explain: Annotated[bool, flag("--explain", "Explain the guarantee in plain words.")] = False


_own = functools.partial(typer.Option, rich_help_panel="Public data for --detect")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectionOptions:
    """Options that ask for another answer: whether an inspection could show a fault."""

    detect: Annotated[str | None, typer.Option(help="Fault: would one inspection at --epsilon detect it?")] = None
    fraction: Annotated[
        float | None, typer.Option(help="Share of clients that have the fault, for --detect (default 0.05).")
    ] = None
    reference: Annotated[str | None, _own(help="Public data to simulate with. Default: a stored measurement.")] = None
    model: Annotated[str | None, _own(help="Primary model: ONNX file or run. Default: trained on --reference.")] = None
    client: Annotated[str | None, _own(help="Column holding the client id, for tables.")] = None
    inputs: Annotated[list[str] | None, _own("--input", help="Field to inspect; repeatable.")] = None
    label: Annotated[str, _own(help="Field holding the true class.")] = "label"
    types: Annotated[list[str] | None, _own("--type", help=TYPES)] = None
    schema: Annotated[Path | None, typer.Option(hidden=True)] = None
    ranges: Annotated[list[str] | None, typer.Option("--range", hidden=True)] = None


@expanded
def plan(rounds: RoundOptions, extras: Extras, detection: DetectionOptions, as_json: AsJson = False) -> None:
    """Privacy arithmetic: epsilon from noise and rounds, noise from epsilon, rounds from epsilon.

    Give two of --noise-multiplier, --rounds and --epsilon; the third is solved for. With --detect FAULT: whether an
    inspection of all clients at --epsilon could show that fault, before anything is spent.
    """
    delta = delta_value(rounds.delta, rounds.population)
    if detection.detect is not None:
        _print_prediction(detection, detection.detect, rounds, delta, as_json)
        return
    if detection.reference is not None:
        raise InvalidInput("--reference is for simulating a fault: name the fault with --detect FAULT")
    if detection.fraction is not None:
        raise InvalidInput("--fraction is the share of clients with a fault: name the fault with --detect FAULT")
    from blindsight.accounting.planning import split_noise
    from blindsight.privacy import plan as make_plan

    with working("computing privacy losses"):
        privacy = rounds.privacy(delta)
        result = make_plan(privacy, delta=delta, as_published=extras.as_published, group=extras.group)
    split = split_noise(privacy.noise_multiplier or 0.0, privacy.cohort) if extras.adaptive_clipping else None
    if as_json:
        adaptive = {"adaptive_clipping": {"noise_multiplier": split[0], "count_std": split[1]}} if split else {}
        print_json(result.to_dict() | adaptive)
    else:
        _print_plan(result, rounds.epsilon, split, extras.explain)


def _print_prediction(
    detection: DetectionOptions, fault: str, rounds: RoundOptions, delta: float, as_json: bool
) -> None:
    if rounds.epsilon is None:
        raise InvalidInput("give the privacy cost of the inspection with --epsilon")
    fraction = _USUAL_FRACTION if detection.fraction is None else detection.fraction
    if detection.reference is None:
        from blindsight.inspection.contrast.power import embedded_yardstick, predict

        if given := [f"--{name}" for name in ("model", "client", "inputs", "types") if getattr(detection, name)]:
            raise InvalidInput(f"{given[0].removesuffix('s')} describes public data: name them with --reference DATA")
        stick, clients = embedded_yardstick(), rounds.population
        prediction = predict(stick, fault, fraction, clients=clients, epsilon=rounds.epsilon, delta=delta)
        print_value(prediction, as_json=as_json)
        return
    from blindsight.jobs.detecting import DetectRequest, run_detect

    request = DetectRequest(
        fault=fault,
        fraction=fraction,
        clients=rounds.population,
        epsilon=rounds.epsilon,
        delta=delta,
        reference=detection.reference,
        model=detection.model,
        client=detection.client,
        inputs=detection.inputs or (),
        label=detection.label,
        **described(detection.types or (), detection.schema, detection.ranges or ()),
    )
    with working("simulating populations with the fault"):
        outlook = run_detect(request)
    print_value(outlook, as_json=as_json)


def _print_plan(result: "Plan", target: float | None, split: tuple[float, float] | None, explain: bool) -> None:
    console = Console(highlight=False)
    if target is not None:
        privacy = result.privacy
        console.print(
            f"noise multiplier [bold]{privacy.noise_multiplier:.5g}[/] over [bold]{privacy.rounds:,}[/] rounds "
            f"keeps epsilon within {target:g}:"
        )
    console.print(result)
    if split is not None:
        console.print(
            f"\nAdaptive clipping: noise the updates at {split[0]:.7g} and the count with standard deviation "
            f"{split[1]:g}; together they cost one release at {result.privacy.noise_multiplier:g}."
        )
    if explain:
        console.print("\n" + result.guarantee.explain(), markup=False)
