"""`digits`: 1,797 real handwritten digits of 8x8 pixels, from scikit-learn."""

from typing import Any

import numpy as np

from blindsight.data.dice import Dice
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["digits"]


def digits(clients: int | None = None, *, seed: int = 0) -> Population:
    """Handwritten digits: `image` (8, 8) float32 in [0, 1] and `label`. Real, and small.

    One digit per client, or split at random into `clients`, as evenly as possible.
    """
    from sklearn.datasets import load_digits  # a second to import

    loaded: Any = load_digits()
    image, label = (loaded["images"] / 16.0).astype(np.float32), loaded["target"].astype(np.int32)
    if clients is None:
        clients = len(label)
    elif clients > len(label):
        raise InvalidInput(f"there are {len(label):,} digits: use at most that many clients, not {clients:,}")
    else:
        dealt = np.argsort(Dice(seed, "digits").words("deal", np.arange(len(label))))
        image, label = image[dealt], label[dealt]
    return Population(
        {"image": image, "label": label},
        sizes=np.diff(np.arange(clients + 1) * len(label) // clients),
        name="digits",
        classes={"label": tuple("0123456789")},
    )
