"""Groups writes of many threads and coroutines into one transaction, with one wait for the disk.

GroupCommit groups calls that differ; CoalescingWriter makes one call for many items of a kind.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import Unavailable
from sagehen.state.database import Database
from sagehen.state.deadlocks import retry_deadlocks

__all__ = ["CoalescingWriter", "GroupCommit", "attempt"]

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Item = TypeVar("Item")

_Pending = tuple[Callable[[Connection], Any], Future[Any]]

_Outcome = tuple[Future[Any], Any, Exception | None]

MAX_GROUP = 128


class GroupCommit:
    """The first writer commits for all that arrived during the last commit.

    Each call sees the writes of earlier ones; a failed call is undone alone and raises to its
    caller. A full disk or lost database fails the whole group.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._scheduled = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Returns once the writes are on disk."""
        done: Future[Result] = Future()
        self._pending.append((work, done))
        with self._lock:
            # An earlier group may have included this work; being bounded, it may take several.
            while not done.done():
                self._commit_group()
        return done.result()

    async def join(self, work: Callable[[Connection], Result]) -> Result:
        """Like `run`, without a thread per caller.

        A cancelled caller does not know whether its writes are on disk.
        """
        done: Future[Result] = Future()
        self._pending.append((work, done))
        if not self._scheduled:
            self._scheduled = True
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
        self._scheduled = False
        with self._lock:
            while self._pending:
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

    def _commit(self, group: Sequence[_Pending]) -> list[_Outcome]:
        def commit() -> list[_Outcome]:
            with self.database.write() as connection:
                return [(done, *attempt(connection, work)) for work, done in group]

        return retry_deadlocks(commit)

    def _take_group(self) -> list[_Pending]:
        count = min(len(self._pending), MAX_GROUP)
        group = [self._pending.popleft() for _ in range(count)]
        return [pending for pending in group if pending[1].set_running_or_notify_cancel()]


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


class CoalescingWriter(Generic[Item, Result]):
    """Writes the items of many coroutines with one call; for one event loop."""

    def __init__(
        self,
        writes: GroupCommit,
        write: Callable[[Connection, Sequence[Item]], Sequence[Result]],
        on_written: Callable[[Sequence[Result]], None] = lambda results: None,
        max_batch: int = MAX_GROUP,
    ) -> None:
        """Args:
        write: returns a result for each item; runs in the writing thread. If it raises, each item
            is tried alone.
        on_written: gets the results of a batch once they are on disk.
        """
        self._writes = writes
        self._write = write
        self._on_written = on_written
        self._max_batch = max_batch
        self._pending: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> Result:
        """Returns once `item` is on disk; raises what `write` raises for this item alone. A
        cancelled caller does not know whether the item was written."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.append((item, result))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return await result

    async def _write_all(self) -> None:
        try:
            while self._pending:
                count = min(len(self._pending), self._max_batch)
                batch = [self._pending.popleft() for _ in range(count)]
                await self._write_batch([pending for pending in batch if not pending[1].done()])
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        items = [item for item, _ in batch]
        try:
            results = await self._writes.join(partial(self._call, items))
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, OperationalError | Unavailable):
                # One item is at fault.
                for pending in batch:
                    await self._write_batch([pending])
                return
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
            try:
                self._on_written(results)
            except Exception:
                log.exception("A notification was lost.", extra={"action": "notify"})

    def _call(self, items: Sequence[Item], connection: Connection) -> Sequence[Result]:
        return self._write(connection, items)


def _fail(batch: Sequence[tuple[Any, asyncio.Future[Any]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
