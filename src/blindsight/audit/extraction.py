"""Can a canary be extracted by someone who knows its first words? Beam search, as in Ramaswamy et al. 2020, Table 4."""

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import LanguageModel
from blindsight.models.generation import beam_search

__all__ = ["extracted"]


def extracted(model: LanguageModel, contexts: np.ndarray, secrets: np.ndarray, *, width: int = 5) -> np.ndarray:
    """Whether beam search of `width` finds each secret (n, words) after its context (n, 1 + prefix)."""
    if len(contexts) != len(secrets) or contexts.ndim != 2 or secrets.ndim != 2:
        raise InvalidInput(f"there must be one secret for each context, got {secrets.shape} and {contexts.shape}")
    beams, _ = beam_search(model, contexts, width=width, length=secrets.shape[1])
    continuations = np.asarray(beams)[:, :, contexts.shape[1] :]
    return np.any(np.all(continuations == secrets[:, None, :], axis=2), axis=1)
