"""Writes of many threads and coroutines in one transaction, so that they share one wait for the
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
    """Whoever comes first commits for all who came while the last commit was under way.

    What `work` wrote is undone when it raises, and its exception comes out. It may run together
    with others' work, each seeing what those before it wrote. A disk that is full, or a database
    that is away, fails the whole group, with what Database.write raises.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._turn = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._asked = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Do `work` in a write transaction; when this returns, it is on disk."""
        done: Future[Result] = Future()
        self._waiting.append((work, done))
        with self._turn:
            # Whoever had the turn before may have done this one already. A group has a bound, so
            # it may take a few.
            while not done.done():
                self._commit_group()
        return done.result()

    async def join(self, work: Callable[[Connection], Result]) -> Result:
        """As `run`, without a thread for each who waits.

        Who is cancelled while it runs does not know whether it is on disk.
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
        """Finish what has been asked for; then `join` must not be called again."""
        if self._thread is not None:
            self._thread.shutdown()

    def _commit_all(self) -> None:
        # First: who comes from now on either is seen below, or asks again.
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
        """What came of each, once all are on disk."""
        try:
            with self.database.write() as connection:
                return [(done, *attempt(connection, work)) for work, done in group]
        except OperationalError as error:
            if tries <= 1 or not _was_in_a_circle(error):
                raise
        return self._commit(group, tries - 1)

    def _take_group(self) -> list[_Waiting]:
        """The next to be done; who was cancelled before it began is left out."""
        count = min(len(self._waiting), MOST_IN_GROUP)
        group = [self._waiting.popleft() for _ in range(count)]
        return [one for one in group if one[1].set_running_or_notify_cancel()]


def _was_in_a_circle(error: OperationalError) -> bool:
    """Each waited for the other's rows: nothing is wrong with either."""
    return getattr(error.orig, "sqlstate", None) in ("40P01", "40001")


def attempt(
    connection: Connection, work: Callable[[Connection], Result]
) -> tuple[Result | None, Exception | None]:
    """What `work` returns, or what it raises; then what it wrote is undone, and nothing else."""
    # By the driver: SQLAlchemy's own savepoints cost several times as much.
    connection.exec_driver_sql("SAVEPOINT one")
    try:
        result = work(connection)
    except OperationalError:
        # The database's own trouble, which is everybody's: the disk is full, the connection lost.
        raise
    except Exception as error:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
        connection.exec_driver_sql("RELEASE SAVEPOINT one")
        return None, error
    connection.exec_driver_sql("RELEASE SAVEPOINT one")
    return result, None
