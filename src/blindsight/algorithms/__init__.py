"""One paper, one file."""

from blindsight.algorithms.dp_fedavg import AdaptiveClip, Algorithm, State, dp_fedavg

__all__ = ["AdaptiveClip", "Algorithm", "State", "dp_fedavg"]
