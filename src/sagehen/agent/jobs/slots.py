"""Counts the attempts that run: those that wait for GPUs give their slot to others."""

import asyncio

__all__ = ["JobSlot", "JobSlots"]


class JobSlots:
    """The slots of a node's attempts, as many as `max_running_jobs`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._changed = asyncio.Event()

    def take(self) -> "JobSlot":
        """Takes a slot whether one is free or not: control has counted."""
        self._taken += 1
        return JobSlot(self)

    def release(self) -> None:
        self._taken -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Takes the next free slot."""
        while self._taken >= self._limit:
            await self._changed.wait()
        self._taken += 1


class JobSlot:
    """The slot of one attempt."""

    def __init__(self, slots: JobSlots) -> None:
        self._slots = slots
        self.is_taken = True

    def release(self) -> None:
        """Does nothing if the slot is not taken."""
        if self.is_taken:
            self.is_taken = False
            self._slots.release()

    async def take_again(self) -> None:
        await self._slots.wait()
        self.is_taken = True
