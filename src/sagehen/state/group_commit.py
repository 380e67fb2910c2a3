"""Groups writes of many threads and coroutines into one transaction, with one wait for the disk."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sagehen.state.database import Database

__all__ = ["GroupCommit", "attempt"]

Result = TypeVar("Result")
_Waiting = tuple[Callable[[Connection], Any], Future[Any]]

_Outcome = tuple[Future[Any], Any, Exception | None]

MOST_IN_GROUP = 128
MOST_TRIES = 5


class GroupCommit:
    """The first writer commits for all that arrived during the last commit.

    Works see the writes before theirs; a failed one is undone alone and raises to its caller. A
    full disk or lost database fails the whole group.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._turn = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._asked = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Returns once the writes are on disk."""
        done: Future[Result] = Future()
        self._waiting.append((work, done))
        with self._turn:
            # An earlier group may have included this work; being bounded, it may take several.
            while not done.done():
                self._commit_group()
        return done.result()

    async def join(self, work: Callable[[Connection], Result]) -> Result:
        """Like `run`, without a thread per caller.

        A cancelled caller does not know whether its writes are on disk.
        """
        done: Future[Result] = Future()
        self._waiting.append((work, done))
        if not self._asked:
            self._asked = True
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "grouped-writes")
            self._thread.submit(self._commit_all)
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Finishes pending work; do not call `join` afterwards."""
        if self._thread is not None:
            self._thread.shutdown()

    def _commit_all(self) -> None:
        # Reset first: later callers are seen below, or submit again.
        self._asked = False
        with self._turn:
            while self._waiting:
                self._commit_group()

    def _commit_group(self) -> None:
        group = self._take_group()
        if not group:
            return
        try:
            outcomes = self._commit(group)
        except BaseException as error:
            for _, done in group:
                done.set_exception(error)
            return
        for done, result, fault in outcomes:
            if fault is None:
                done.set_result(result)
            else:
                done.set_exception(fault)

    def _commit(self, group: Sequence[_Waiting], tries: int = MOST_TRIES) -> list[_Outcome]:
        try:
            with self.database.write() as connection:
                return [(done, *attempt(connection, work)) for work, done in group]
        except OperationalError as error:
            if tries <= 1 or not _was_in_a_circle(error):
                raise
        return self._commit(group, tries - 1)

    def _take_group(self) -> list[_Waiting]:
        count = min(len(self._waiting), MOST_IN_GROUP)
        group = [self._waiting.popleft() for _ in range(count)]
        return [one for one in group if one[1].set_running_or_notify_cancel()]


def _was_in_a_circle(error: OperationalError) -> bool:
    """Returns whether the database ended a deadlock or serialization conflict: a retry helps."""
    return getattr(error.orig, "sqlstate", None) in ("40P01", "40001")


def attempt(
    connection: Connection, work: Callable[[Connection], Result]
) -> tuple[Result | None, Exception | None]:
    """Returns a result or an exception; undoes the writes of a failed `work` only."""
    # Plain SQL: SQLAlchemy's savepoints are several times slower.
    connection.exec_driver_sql("SAVEPOINT one")
    try:
        result = work(connection)
    except OperationalError:
        # Faults of the database affect the whole group.
        raise
    except Exception as error:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
        connection.exec_driver_sql("RELEASE SAVEPOINT one")
        return None, error
    connection.exec_driver_sql("RELEASE SAVEPOINT one")
    return result, None
