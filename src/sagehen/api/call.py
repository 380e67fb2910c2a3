"""What every operation is given besides its parameters."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sagehen.api.arrivals import Arrivals
from sagehen.clock import Clock
from sagehen.domain.envelopes import Envelope
from sagehen.domain.names import ArnMaker
from sagehen.settings import Settings
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites

__all__ = ["AsyncOperation", "Call", "Operation"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request's surroundings."""

    settings: Settings
    database: Database
    writes: GroupedWrites
    """Of the same database: for what is asked often."""
    objects: Any
    clock: Clock
    arns: ArnMaker
    request_id: str
    hint: Callable[[], None]
    """Wakes the reconcile loop: what is wanted has changed."""
    seal: Callable[[Envelope], str]
    """A notice's envelope, signed, as its receiver gets it. Takes a while."""
    arrivals: Arrivals
    """Who waits for messages, by their queue."""
    by_link: bool = False
    """Nobody has signed it: it comes from a link in a message."""


Operation = Callable[[Call, dict[str, Any]], dict[str, Any]]
"""Parameters in, output members out, both named as in botocore's model; raises AwsError.
Runs in a worker thread, so it may block on the database."""

AsyncOperation = Callable[[Call, dict[str, Any]], Awaitable[dict[str, Any]]]
"""As above, but runs in the event loop: it waits for something, or shares others' writes."""
