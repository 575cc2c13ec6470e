"""Randomness is never a default and never positional: every function that draws asks for its key by name."""

import inspect

import pytest

from blindsight import keys, mechanisms, participation
from blindsight.algorithms import draw_and_discard

DRAWING = [
    mechanisms.GaussianMechanism.begin,
    mechanisms.GaussianMechanism.release,
    mechanisms.LaplaceMechanism.release,
    mechanisms.NoisyArgmax.release,
    mechanisms.Votes.release,
    mechanisms.Quantile.release,
    mechanisms.WithoutNoise.begin,
    mechanisms.WithoutNoise.release,
    mechanisms.publish,
    participation.TruncatedPoissonRounds.draw,
    participation.FixedSizeRounds.draw,
    participation.Unproven.draw,
    draw_and_discard.client_update,
    draw_and_discard.client_update_of,
    draw_and_discard.initial_instances,
    draw_and_discard.draw,
    draw_and_discard.discard,
]


@pytest.mark.parametrize("function", DRAWING, ids=lambda function: function.__qualname__)
def test_the_key_is_a_required_keyword(function):
    parameter = inspect.signature(function).parameters["key"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is inspect.Parameter.empty


def test_nothing_else_that_draws_was_forgotten():
    owners = [mechanisms, participation]
    found = {
        value
        for owner in owners
        for kind in vars(owner).values()
        if inspect.isclass(kind) and not getattr(kind, "_is_protocol", False)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and "key" in inspect.signature(value).parameters and name != "__init__"
    }
    assert found <= {*DRAWING, participation.Full.draw}


def test_settings_are_asked_for_by_name():
    with pytest.raises(TypeError):
        mechanisms.gaussian(1.0, "float")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        mechanisms.laplace(1.0, "float")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        participation.poisson(10, 2, 5)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        participation.unproven(10, 2, 5)  # pyright: ignore[reportCallIssue]
    assert keys.root() != keys.root()
