"""Errors of instances and multi-model containers; `app.py` maps them to HTTP statuses."""

from sagehen.base.errors import LimitExceeded, SagehenError, Unavailable

__all__ = ["CannotStart", "ModelNotReady", "ModelRefused", "NoRoom"]


class CannotStart(SagehenError):
    """A container's command could not be run."""


class ModelNotReady(Unavailable):
    """The model is still being loaded; loading goes on."""


class ModelRefused(SagehenError):
    """The container answered a load request with an error."""


class NoRoom(LimitExceeded):
    """A model does not fit, even with all others unloaded."""
