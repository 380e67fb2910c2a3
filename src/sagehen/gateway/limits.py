"""What one client may take of this process, and how long; read once from the settings."""

import resource
from dataclasses import dataclass

from sagehen.config import Settings

__all__ = ["ClientLimits"]

FILES_PER_CLIENT = 4
"""A client's request may need a connection to an instance, one to a shadow and one to control."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits:
    """The bounds of every client's connection."""

    connections: int
    """At once."""
    head_bytes: int
    head_seconds: float
    """For a request's head, from its first byte: a client that drips it is cut off."""
    stall_seconds: float
    """For the next piece of a body, and for a client to take what it is sent."""
    idle_seconds: float
    """Between requests."""

    @classmethod
    def of(cls, settings: Settings) -> "ClientLimits":
        """As the settings say, but no more connections than there can be files."""
        return cls(
            connections=_at_most_files_for(settings.max_connections),
            head_bytes=settings.max_head_bytes,
            head_seconds=settings.head_timeout_seconds,
            stall_seconds=settings.stall_timeout_seconds,
            idle_seconds=settings.idle_timeout_seconds,
        )


def _at_most_files_for(clients: int) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return clients if hard < 0 else min(clients, hard // FILES_PER_CLIENT)
