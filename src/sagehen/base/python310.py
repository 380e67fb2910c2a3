"""Replacements on Python 3.10 for parts of 3.11, for images whose libraries stop at 3.10."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["Runner", "timeout"]

Result = TypeVar("Result")

if sys.version_info >= (3, 11):  # noqa: UP036
    from asyncio import Runner, timeout
else:

    @asynccontextmanager
    async def timeout(seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError."""
        task = asyncio.current_task()
        timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
        expires = timer.when()
        try:
            yield
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() >= expires:
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()

    class Runner:
        """Without the signal handlers of Python's own."""

        def __init__(self) -> None:
            self._loop = asyncio.new_event_loop()

        def __enter__(self) -> "Runner":
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

        def run(self, main: Coroutine[Any, Any, Result]) -> Result:
            return self._loop.run_until_complete(main)
