"""Errors of instances and multi-model containers; `app.py` maps them to HTTP statuses."""

from sagehen.base.errors import LimitExceeded, SagehenError, Unavailable

__all__ = [
    "CannotStart",
    "ContainerUnhealthy",
    "InstanceFailed",
    "ModelNotReady",
    "ModelRefused",
    "NoRoom",
]


class CannotStart(SagehenError):
    """A container's command could not be run."""


class InstanceFailed(SagehenError):
    """The instance cannot become healthy; the message is its FailureReason."""


class ContainerUnhealthy(SagehenError):
    """A container ended or did not answer in time; the message is a FailureReason.

    Args:
        final: a second start would not help.
    """

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class ModelNotReady(Unavailable):
    """The model is still being loaded; loading goes on."""


class ModelRefused(SagehenError):
    """The container answered a load request with an error."""


class NoRoom(LimitExceeded):
    """A model does not fit, even with all others unloaded."""
