"""What every operation is given besides its parameters.

How what happens is counted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["AsyncOperation", "MessageArrivals", "Operation", "Record", "RequestContext"]


class MessageArrivals(Protocol):
    """Wakes ReceiveMessage calls that wait for messages of a queue."""

    closed: bool
    """The server ends: no call may wait any longer."""

    def waiting(self, queue_name: str, /) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the queue may have messages.

        Raises:
            LimitExceeded: too many calls wait already.
        """

    def wake_one(self, queue_name: str, /) -> None:
        """Wake the call that has waited longest for the queue."""


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """One request's surroundings."""

    settings: Settings
    database: Database
    writes: GroupCommit
    """Of the same database: for what is asked often."""
    objects: Any
    clock: Clock
    arns: ArnMaker
    request_id: str
    hint: Callable[[], None]
    """Wakes the reconcile loop: what is wanted has changed."""
    seal: Callable[[Any], str]
    """Signs the `Envelope` of an SNS notice; returns it as its receiver gets it. Takes a while."""
    arrivals: MessageArrivals
    by_link: bool = False
    """Nobody has signed it: it comes from a link in a message."""


Operation = Callable[[RequestContext, dict[str, Any]], dict[str, Any]]
"""Parameters in, output members out, both named as in botocore's model; raises AwsError.
Runs in a worker thread, so it may block on the database."""

AsyncOperation = Callable[[RequestContext, dict[str, Any]], Awaitable[dict[str, Any]]]
"""As above, but runs in the event loop: it waits for something, or shares others' writes."""


Record = Callable[[str, Mapping[str, str], float], None]
"""Takes a metric's name, its dimensions by our names of them, and a value in its unit."""
