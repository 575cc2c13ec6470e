"""Mechanisms: a bounded sum goes in, a noised value and its event come out of one call."""

from blindsight.mechanisms.gaussian import GaussianMechanism, gaussian
from blindsight.mechanisms.laplace import LaplaceMechanism, laplace
from blindsight.mechanisms.quantile import Quantile, QuantileEstimate, quantile
from blindsight.mechanisms.release import Mechanism, Release, publish
from blindsight.mechanisms.unprotected import WithoutNoise, without_noise
from blindsight.mechanisms.votes import Tally, Votes, votes

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "Quantile",
    "QuantileEstimate",
    "Release",
    "Tally",
    "Votes",
    "WithoutNoise",
    "gaussian",
    "laplace",
    "publish",
    "quantile",
    "votes",
    "without_noise",
]
