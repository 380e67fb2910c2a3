"""Which requests of a link a container has begun: a file that outlives the container.

When a container is killed, its gateway reads there which requests may go to another instance.
Frames could not say it: one for each request would have to leave before the model is called.

The container maps the file. The gateway only reads it: code of a model could cut the file short,
and a process that touches such a mapping is killed.
"""

import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["INDEX_BITS", "MAX_INDEX", "BegunMarker", "BegunMarks", "open_begun_marker"]

INDEX_BITS = 16
"""A number's lower bits are the request's index among those in flight, the upper its generation."""
MAX_INDEX = (1 << INDEX_BITS) - 1
_FILE_BYTES = 2 << INDEX_BITS
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


class BegunMarker:
    """Marks requests, for the container."""

    __slots__ = ("_generations", "_page")

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._generations = memoryview(page).cast("H")
        """of the last request begun, by index"""

    def mark(self, number: int) -> None:
        self._generations[number & MAX_INDEX] = number >> INDEX_BITS

    def close(self) -> None:
        self._generations.release()
        self._page.close()


class BegunMarks:
    """A link's file, for the gateway. Raises OSError if the file cannot be created."""

    def __init__(self, path: Path) -> None:
        self._path: Path | None = path
        self.name = path.name
        # A file of that name was left by a killed gateway which had the same PID.
        path.unlink(missing_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Not sparse: on a full disk, the container would be killed as it touches a page.
            os.posix_fallocate(self._descriptor, 0, _FILE_BYTES)
        except OSError:
            self.close()
            raise

    def unlink(self) -> None:
        """Removes the name, which is no longer needed once the container has opened the file."""
        path, self._path = self._path, None
        if path is not None:
            with suppress(OSError):
                path.unlink()

    def read(self) -> "BegunRequests":
        """Call after the container is gone."""
        try:
            return BegunRequests(os.pread(self._descriptor, _FILE_BYTES, 0))
        except OSError:
            return BegunRequests(b"")

    def close(self) -> None:
        """Repeated calls do nothing."""
        self.unlink()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class BegunRequests:
    """The marks of a link that has ended."""

    def __init__(self, generations: bytes) -> None:
        # Code of the model may have cut the file.
        is_whole = len(generations) == _FILE_BYTES
        self._generations = memoryview(generations).cast("H") if is_whole else None

    def __contains__(self, number: int) -> bool:
        """True also where the marks cannot be trusted: a begun request must not be sent again."""
        if self._generations is None:
            return True
        return self._generations[number & MAX_INDEX] == number >> INDEX_BITS


def open_begun_marker(folder: Path, name: str) -> BegunMarker:
    """Opens the gateway's file `name` in `folder`.

    Raises:
        OSError: the file is not there, or is none of marks.
    """
    if _NAME.fullmatch(name) is None:
        raise OSError(f"{name!r} is not the name of a file of marks")
    descriptor = os.open(folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != _FILE_BYTES:
            raise OSError(f"{name!r} has not the size of a file of marks")
        return BegunMarker(mmap.mmap(descriptor, _FILE_BYTES))
    finally:
        os.close(descriptor)
