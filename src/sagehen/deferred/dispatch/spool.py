"""An answer on its way to the object store: on disk if it is large, good for several tries."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from sagehen.deferred.dispatch.failures import answer_not_kept, answer_too_large
from sagehen.objects.files import MOST_HELD_BYTES, Draft
from sagehen.patience import AWAY, Patience
from sagehen.threads import Threads

__all__ = ["Spool"]

WRITE_BYTES = 256 * 2**10
"""What is held in memory before it is written."""


class Spool:
    """
    Args:
        make_draft: of the object store that it goes to.
        patience: with a disk that is full: a container that has answered is not asked again.
        most_bytes: more are refused.
        kept_bytes: as many of its first bytes stay in memory, for a notice.
    """

    def __init__(
        self,
        make_draft: Callable[[], Draft],
        threads: Threads,
        patience: Patience,
        most_bytes: int,
        kept_bytes: int = 0,
    ) -> None:
        self._make_draft = make_draft
        self._threads = threads
        self._patience = patience
        self._most_bytes = most_bytes
        self._kept_bytes = kept_bytes
        self._waiting = bytearray()
        self._kept = bytearray()
        self._draft: Draft | None = None
        self._held: bytes | None = None
        self._spare: Path | None = None
        self.size = 0

    @property
    def whole(self) -> bytes | None:
        """All of it, where that is no more than `kept_bytes`."""
        return bytes(self._kept) if self.size <= self._kept_bytes else None

    @property
    def held(self) -> bytes | None:
        """All of it, where it is so little that it needs no file."""
        return bytes(self._waiting) if self.size <= MOST_HELD_BYTES else None

    @property
    def beginning(self) -> bytes:
        """Its first `kept_bytes`."""
        return bytes(self._kept)

    async def write(self, data: bytes) -> None:
        """Add `data`. Raises Failure: it is too much, or for long it did not fit on the disk."""
        self.size += len(data)
        if self.size > self._most_bytes:
            raise answer_too_large(self._most_bytes)
        if len(self._kept) < self._kept_bytes:
            self._kept += data[: self._kept_bytes - len(self._kept)]
        self._waiting += data
        if len(self._waiting) >= WRITE_BYTES:
            await self._flush()

    async def end(self) -> None:
        """All has been written. Raises Failure as `write` does."""
        if self.size > MOST_HELD_BYTES and self._waiting:
            await self._flush()

    async def _flush(self) -> None:
        waiting = bytes(self._waiting)
        self._waiting.clear()
        try:
            await self._patience(lambda: self._threads.run(lambda: self._write_out(waiting)))
        except AWAY as error:
            raise answer_not_kept(str(error)) from error

    def _write_out(self, data: bytes) -> None:
        if self._draft is None:
            self._draft = self._make_draft()
        self._draft.write(data)

    def take_draft(self) -> Draft:
        """A draft of all of it, for one try to store it. Blocks; raises StorageFull."""
        if self._draft is not None:
            # A try that fails takes the file with it: its second name is for the next.
            draft, self._draft = self._draft, None
            if draft.held is None:
                self._spare = draft.path.with_name(draft.path.name + ".spare")
                os.link(draft.path, self._spare)
            else:
                self._held = draft.held
            return draft
        draft = self._make_draft()
        try:
            for chunk in self._again():
                draft.write(chunk)
        except BaseException:
            draft.discard()
            raise
        return draft

    def _again(self) -> Iterator[bytes]:
        if self._spare is None:
            yield self._held or bytes(self._waiting)
            return
        with self._spare.open("rb") as file:
            while chunk := file.read(WRITE_BYTES):
                yield chunk

    def discard(self) -> None:
        """Let go of what is on disk. Quick."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None
        if self._spare is not None:
            with suppress(OSError):
                self._spare.unlink()
            self._spare = None
