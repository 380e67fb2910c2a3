"""What clients and their invocations may take of this process, and how often they met a limit."""

import resource
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.base.settings.hosting import ConnectionSettings, InvocationSettings

__all__ = ["ClientLimits", "InvocationLimits", "Limit", "LimitHits", "no_hits"]

FILES_PER_CLIENT = 4
"""A client's request may need a connection to an instance, one to a shadow and one to control."""
OWN_FILES = 24
"""What a gateway has open without any client, with some to spare."""
RESERVE = 8
"""Connections beyond the limit, on which the server's health may still be asked for."""
_FILES_PER_RESERVED = 2
_SHARE_OF_TIMEOUT = 0.995
"""SDKs give up after the same 60 s: answered a moment before, they learn what happened."""


class Limit(StrEnum):
    """Named as they are told; docs/reference/limits.md has the setting and the answer of each."""

    QUEUE = "queue"
    BODIES = "bodies"
    BODY_SIZE = "body_size"
    INVOCATION_TIMEOUT = "invocation_timeout"
    PIPELINE_BODY = "pipeline_body"
    LOADING = "loading"
    STREAM_TIMEOUT = "stream_timeout"
    SHADOW_COPIES = "shadow_copies"
    CONNECTIONS = "connections"
    EVICTED = "evicted"
    HEAD = "head"
    HEAD_TIMEOUT = "head_timeout"
    STALL = "stall"
    ANSWER_STALL = "answer_stall"
    IDLE = "idle"
    ACCESS_LOG = "access_log"


LimitHits = dict[Limit, int]
"""How often each was met since this process began."""


def no_hits() -> LimitHits:
    """All of them, so that a metric is there before it first counts."""
    return dict.fromkeys(Limit, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits:
    """The bounds of connections; read once from the settings."""

    connections: int
    """At once."""
    head_bytes: int
    head_seconds: float
    """For a request's head, from its first byte: a client that drips it is cut off."""
    stall_seconds: float
    """For the next piece of a body, and for a client to take what it is sent."""
    idle_seconds: float
    """Between requests. Best longer than SDKs keep an unused connection: so they end it, not we."""

    @classmethod
    def of(cls, settings: "ConnectionSettings") -> "ClientLimits":
        """As the settings say, but no more connections than there can be files."""
        return cls(
            connections=_at_most_files_for(settings.max_connections),
            head_bytes=settings.max_head_bytes,
            head_seconds=settings.head_timeout_seconds,
            stall_seconds=settings.stall_timeout_seconds,
            idle_seconds=settings.idle_timeout_seconds,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class InvocationLimits:
    """The bounds of invocations; read once from the settings."""

    invocations: int
    """At once, waiting ones too."""
    seconds: float
    """For an answer to begin."""
    stream_seconds: float
    """For one that has begun to end."""
    body_bytes: int
    stage_bytes: int
    """Of an answer that is passed from one container of a pipeline to the next."""

    @classmethod
    def of(cls, settings: "InvocationSettings") -> "InvocationLimits":
        return cls(
            invocations=settings.max_queued_invocations,
            seconds=settings.invocation_timeout_seconds * _SHARE_OF_TIMEOUT,
            stream_seconds=settings.response_stream_timeout_seconds,
            body_bytes=settings.max_invocation_body_bytes,
            stage_bytes=settings.max_pipeline_body_bytes,
        )


def _at_most_files_for(clients: int) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 0:
        return clients
    left = hard - OWN_FILES - RESERVE * _FILES_PER_RESERVED
    return max(1, min(clients, left // FILES_PER_CLIENT))
