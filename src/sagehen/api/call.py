"""What every operation is given besides its parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sagehen.clock import Clock
from sagehen.config import Settings
from sagehen.domain.names import ArnMaker
from sagehen.store.database import Database

__all__ = ["Call", "Operation"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request's surroundings."""

    settings: Settings
    database: Database
    objects: Any
    clock: Clock
    arns: ArnMaker
    request_id: str
    hint: Callable[[], None]
    """Wakes the reconcile loop: what is wanted has changed."""


Operation = Callable[[Call, dict[str, Any]], dict[str, Any]]
"""Parameters in, output members out, both named as in botocore's model; raises AwsError.
Runs in a worker thread, so it may block on the database."""
