"""What many coroutines ask to be written, by few statements: what waits goes together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sagehen.errors import Unavailable
from sagehen.store.grouped import GroupedWrites

__all__ = ["Together"]

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_TOGETHER = 128


class Together(Generic[Item, Result]):
    """For one event loop.

    Args:
        write: writes some items, and tells what came of each. Where it raises, nothing of them is
            written, and each is written alone.
    """

    def __init__(
        self,
        writes: GroupedWrites,
        write: Callable[[Connection, Sequence[Item]], Sequence[Result]],
    ) -> None:
        self._writes = writes
        self._write = write
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> Result:
        """What came of it, once that is on disk; raises what `write` raises for it alone.

        Who is cancelled meanwhile does not know whether it is on disk.
        """
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return await result

    async def _write_all(self) -> None:
        """One batch after the other: what comes while one is written makes the next."""
        try:
            while self._waiting:
                count = min(len(self._waiting), MOST_TOGETHER)
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._write_batch([one for one in batch if not one[1].done()])
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        try:
            items = [item for item, _ in batch]
            results = await self._writes.join(partial(self._call, items))
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, OperationalError | Unavailable):
                # One of them is at fault, and the others need not suffer for it.
                for one in batch:
                    await self._write_batch([one])
                return
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def _call(self, items: Sequence[Item], connection: Connection) -> Sequence[Result]:
        return self._write(connection, items)


def _fail(batch: Sequence[tuple[Item, asyncio.Future[Result]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
