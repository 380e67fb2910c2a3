"""Errors of instances and of multi-model containers; `app.py` alone gives them HTTP statuses."""

from sagehen.base.errors import LimitExceeded, SagehenError, Unavailable

__all__ = ["CannotStart", "ModelNotReady", "ModelRefused", "NoRoom"]


class CannotStart(SagehenError):
    """A container's command could not be run at all."""


class ModelNotReady(Unavailable):
    """A model is still being loaded; its loading goes on."""


class ModelRefused(SagehenError):
    """The container was asked to load a model and answered with an error."""


class NoRoom(LimitExceeded):
    """A model does not fit, even with every other one unloaded."""
