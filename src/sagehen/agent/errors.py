"""Errors of instances and multi-model containers; `app.py` maps them to HTTP statuses."""

from sagehen.base.errors import LimitExceeded, SagehenError, Unavailable

__all__ = [
    "CannotStart",
    "ContainerUnhealthy",
    "EngineError",
    "EngineNotFound",
    "EngineUnavailable",
    "InstanceFailed",
    "ModelNotReady",
    "ModelRefused",
    "NoRoom",
]


class CannotStart(SagehenError):
    """A container's command could not be run."""


class EngineError(CannotStart):
    """The Docker Engine refused a call; the message is its own."""


class EngineNotFound(EngineError):
    """The Docker Engine has no such image, container or network."""


class EngineUnavailable(EngineError):
    """The Docker Engine does not answer; the message says what to do."""


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
