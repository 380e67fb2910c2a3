"""Writes of several threads in one transaction, so that they share one wait for the disk."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection

from sagehen.errors import StateFull
from sagehen.objects.faults import StorageFull
from sagehen.store.database import Database

__all__ = ["GroupedWrites"]

Result = TypeVar("Result")
_Waiting = tuple[Callable[[Connection], Any], Future[Any]]

MOST_IN_GROUP = 64


class GroupedWrites:
    """Whoever comes first commits for all who came while the last commit was under way."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._waiting: list[_Waiting] = []

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Do `work` in a write transaction; when this returns, it is on disk.

        What `work` wrote is undone when it raises, and its exception comes out here. It may run
        together with others' work, each seeing what those before it wrote.
        """
        done: Future[Result] = Future()
        self._waiting.append((work, done))
        with self._turn:
            # Whoever had the turn before may have done this one already. A group has a bound, so
            # it may take a few.
            while not done.done():
                self._commit_group()
        return done.result()

    def _commit_group(self) -> None:
        group = self._waiting[:MOST_IN_GROUP]
        del self._waiting[: len(group)]
        outcomes: list[tuple[Future[Any], Any, Exception | None]] = []
        try:
            with self._database.write() as connection:
                for work, done in group:
                    outcomes.append((done, *_attempt(connection, work)))
        except BaseException as error:
            for _, done in group:
                done.set_exception(_full_or(error))
            return
        for done, result, fault in outcomes:
            if fault is None:
                done.set_result(result)
            else:
                done.set_exception(fault)


def _full_or(error: BaseException) -> BaseException:
    return StorageFull(str(error)) if isinstance(error, StateFull) else error


def _attempt(
    connection: Connection, work: Callable[[Connection], Any]
) -> tuple[Any, Exception | None]:
    savepoint = connection.begin_nested()
    try:
        result = work(connection)
    except Exception as error:
        savepoint.rollback()
        return None, error
    savepoint.commit()
    return result, None
