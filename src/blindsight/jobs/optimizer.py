"""The server's optimiser, for every kind of model."""

import optax

from blindsight.config import ServerSettings

__all__ = ["make_server_optimizer"]


def make_server_optimizer(settings: ServerSettings, *, adam_eps: float = 1e-3) -> optax.GradientTransformation:
    """The optimiser that [server] names. Mean updates are small: Adam's usual `adam_eps` of 1e-8 amplifies noise."""
    if settings.optimizer == "adam":
        return optax.adam(settings.learning_rate, eps=adam_eps)
    is_nesterov = settings.optimizer == "nesterov"
    return optax.sgd(settings.learning_rate, momentum=settings.momentum if is_nesterov else None, nesterov=is_nesterov)
