"""Runs work again that the database has ended because of a deadlock. Only PostgreSQL has them:
SQLite has one writer at a time."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import OperationalError

__all__ = ["MAX_ATTEMPTS", "is_deadlock", "retry_deadlocks"]

Result = TypeVar("Result")

MAX_ATTEMPTS = 5


def is_deadlock(error: OperationalError) -> bool:
    """Tells whether the database ended a deadlock or a serialization conflict."""
    return getattr(error.orig, "sqlstate", None) in ("40P01", "40001")


def retry_deadlocks(work: Callable[[], Result], attempts: int = MAX_ATTEMPTS) -> Result:
    """Calls `work`, which makes its transaction itself: one that was ended has left nothing."""
    try:
        return work()
    except OperationalError as error:
        if attempts <= 1 or not is_deadlock(error):
            raise
    return retry_deadlocks(work, attempts - 1)
