"""Limits on connections and invocations, and how often each was hit."""

import resource
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sagehen.http1.limits import ConnectionLimits

if TYPE_CHECKING:
    from sagehen.base.settings import Settings
    from sagehen.base.settings.hosting import ConnectionSettings

__all__ = ["ClientLimits", "InvocationLimits", "Limit", "LimitHits", "no_hits"]

ANSWER_STALL_SECONDS = 900.0
"""for the next piece of an answer: S3 may copy gigabytes in silence"""
FILES_PER_CLIENT = 4
"""client, instance, shadow and control"""
OWN_FILES = 24
"""open without clients, with some to spare"""
RESERVE = 8
"""connections over the limit, for health checks only"""
_FILES_PER_RESERVED = 2
_SHARE_OF_TIMEOUT = 0.995
"""SDKs give up after the same 60 s: answered just before, they learn what happened"""


class Limit(StrEnum):
    """Limits by metric label; docs/reference/limits.md has each setting and answer."""

    QUEUE = "queue"
    BODIES = "bodies"
    BODY_SIZE = "body_size"
    INVOCATION_TIMEOUT = "invocation_timeout"
    PIPELINE_BODY = "pipeline_body"
    LOADING = "loading"
    START_QUEUE = "start_queue"
    START_WAIT = "start_wait"
    CONCURRENCY = "concurrency"
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
"""since this process began"""


def no_hits() -> LimitHits:
    """Lists every limit, so that each metric exists before its first hit."""
    return dict.fromkeys(Limit, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits(ConnectionLimits):
    """Limits on client connections; idle ones end later than SDKs end them."""

    connections: int
    """at once"""

    @classmethod
    def of(cls, settings: "ConnectionSettings") -> "ClientLimits":
        """Caps connections by the limit on open files."""
        return cls(
            connections=_at_most_files_for(settings.max_connections),
            head_bytes=settings.max_head_bytes,
            head_bytes_setting="max_head_bytes",
            head_seconds=settings.head_timeout_seconds,
            stall_seconds=settings.stall_timeout_seconds,
            answer_seconds=ANSWER_STALL_SECONDS,
            idle_seconds=settings.idle_timeout_seconds,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class InvocationLimits:
    """Limits on invocations."""

    invocations: int
    """at once, with waiting ones"""
    seconds: float
    """until an answer begins"""
    stream_seconds: float
    """from the first to the last byte of an answer"""
    body_bytes: int
    stage_bytes: int
    """of an answer between two pipeline containers"""
    start_seconds: float = 180.0
    """until the first instance has started"""
    waiting_for_start: int = 1000
    """at once, for one variant"""

    @classmethod
    def of(cls, settings: "Settings") -> "InvocationLimits":
        return cls(
            invocations=settings.max_queued_invocations,
            seconds=settings.invocation_timeout_seconds * _SHARE_OF_TIMEOUT,
            stream_seconds=settings.response_stream_timeout_seconds,
            body_bytes=settings.max_invocation_body_bytes,
            stage_bytes=settings.max_pipeline_body_bytes,
            start_seconds=settings.start_wait_seconds,
            waiting_for_start=settings.max_waiting_for_start,
        )


def _at_most_files_for(clients: int) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 0:
        return clients
    left = hard - OWN_FILES - RESERVE * _FILES_PER_RESERVED
    return max(1, min(clients, left // FILES_PER_CLIENT))
