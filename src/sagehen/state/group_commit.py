"""Groups the writes of many threads and coroutines into one transaction, to share one wait for the
disk."""

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

    If `work` raises, only its own writes are undone, and its caller gets the exception. Works of a
    group run in turn, each seeing the writes before it. A full disk or a lost database fails the
    whole group, with the errors of Database.write.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._turn = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._asked = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Runs `work` in a write transaction; on return, its writes are on disk."""
        done: Future[Result] = Future()
        self._waiting.append((work, done))
        with self._turn:
            # An earlier group may have included this work. Groups are bounded, so it may take
            # several.
            while not done.done():
                self._commit_group()
        return done.result()

    async def join(self, work: Callable[[Connection], Result]) -> Result:
        """Like `run`, without a thread for each waiting caller.

        A caller cancelled while its work runs does not know whether the writes are on disk.
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
        """Finishes all pending work; `join` must not be called afterwards."""
        if self._thread is not None:
            self._thread.shutdown()

    def _commit_all(self) -> None:
        # Reset first: later callers are either seen below, or submit again.
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
        """Returns the outcome of each work, once all are on disk."""
        try:
            with self.database.write() as connection:
                return [(done, *attempt(connection, work)) for work, done in group]
        except OperationalError as error:
            if tries <= 1 or not _was_in_a_circle(error):
                raise
        return self._commit(group, tries - 1)

    def _take_group(self) -> list[_Waiting]:
        """Takes the next works, without those cancelled before they began."""
        count = min(len(self._waiting), MOST_IN_GROUP)
        group = [self._waiting.popleft() for _ in range(count)]
        return [one for one in group if one[1].set_running_or_notify_cancel()]


def _was_in_a_circle(error: OperationalError) -> bool:
    """Returns whether the database ended a deadlock or serialization conflict, which a retry
    solves."""
    return getattr(error.orig, "sqlstate", None) in ("40P01", "40001")


def attempt(
    connection: Connection, work: Callable[[Connection], Result]
) -> tuple[Result | None, Exception | None]:
    """Returns the result of `work` or its exception; undoes only the writes of a failed `work`."""
    # Plain SQL: SQLAlchemy's savepoints cost several times as much.
    connection.exec_driver_sql("SAVEPOINT one")
    try:
        result = work(connection)
    except OperationalError:
        # A fault of the database affects all of the group: the disk is full, the connection lost.
        raise
    except Exception as error:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
        connection.exec_driver_sql("RELEASE SAVEPOINT one")
        return None, error
    connection.exec_driver_sql("RELEASE SAVEPOINT one")
    return result, None
