"""The context that every operation gets besides its parameters."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["AsyncOperation", "MessageArrivals", "Operation", "Record", "RequestContext"]


class MessageArrivals(Protocol):
    """Wakes waiting ReceiveMessage calls."""

    closed: bool
    """set at shutdown: no call may wait"""

    def waiting(self, queue_name: str, /) -> AbstractContextManager[asyncio.Event]:
        """Yields an event, set when the queue may have messages; raises LimitExceeded."""

    def wake_one(self, queue_name: str, /) -> None:
        """Wakes the longest waiting call."""


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """The services and settings that a request needs."""

    settings: Settings
    database: Database
    writes: GroupCommit
    """commits of `database` in groups, for frequent writes"""
    objects: Any
    clock: Clock
    arns: ArnMaker
    request_id: str
    hint: Callable[[], None]
    """wakes the reconcile loop after a change"""
    seal: Callable[[Any], str]
    """Signs the `Envelope` of an SNS notice, and returns the message. Slow."""
    arrivals: MessageArrivals
    alarms: Any = None
    """CloudWatch's `AlarmChanges`"""
    autoscaling: Any = None
    """The `Autoscaler`, which changes desired counts."""
    by_link: bool = False
    """unsigned: the request comes from a link in a message"""
    trace_header: str | None = None
    """the request's X-Amzn-Trace-Id, which messages and events carry on"""
    warnings: list[str] = field(default_factory=list)
    """what is missing in the answer, for its header `x-sagehen-warning`"""


Operation = Callable[[RequestContext, dict[str, Any]], dict[str, Any]]
"""Takes parameters and returns output members, as in botocore's model; raises AwsError. May block:
runs in a thread."""

AsyncOperation = Callable[[RequestContext, dict[str, Any]], Awaitable[dict[str, Any]]]
"""like Operation, in the event loop: waits, or joins a group commit"""


Record = Callable[[str, Mapping[str, str], float], None]
"""takes a metric's name, its dimensions by our names, and a value in its unit"""
