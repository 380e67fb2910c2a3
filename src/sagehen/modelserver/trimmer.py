"""Gives memory back beside serving: apart from `memory.py`, as workers have no event loop."""

import asyncio

from sagehen.modelserver.memory import trim

__all__ = ["Trimmer"]

TRIM_SECONDS = 1.0
"""Each trimming goes through all that the process has ever allocated: milliseconds, or tens of
them, which a container whose models come and go all the time must not pay for every one."""


class Trimmer:
    """Trims soon after each `ask`, once for all that come within a second."""

    def __init__(self, seconds: float = TRIM_SECONDS) -> None:
        self._seconds = seconds
        self._trimming: asyncio.Task[None] | None = None

    def ask(self) -> None:
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().create_task(self._trim())

    async def _trim(self) -> None:
        await asyncio.sleep(self._seconds)
        self._trimming = None
        await asyncio.to_thread(trim)
