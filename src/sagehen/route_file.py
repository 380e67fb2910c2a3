"""Follows the route table, the file that control writes: for all who read it."""

import logging
import os
from pathlib import Path

import msgspec

from sagehen.clock import Clock
from sagehen.domain.routes import RouteTable

__all__ = ["RouteFileReader"]

log = logging.getLogger(__name__)

FRESH_SECONDS = 0.001
"""How old what is known of the file may be. Looking costs some 2 µs; whoever was told that an
endpoint is in service, or has another weight, finds it so at once."""


class RouteFileReader:
    """The table as it was read last; it stays in force while the file is away or makes no sense."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._looked_at: float | None = None
        self._seen: tuple[int, int, int] | None = None
        self.is_read = False
        """Whether there was a table yet; until then `table` is an empty one."""
        self.table = RouteTable(routes={})

    def refresh_if_old(self) -> bool:
        """As `refresh`, unless that was done a moment ago."""
        now = self._clock.monotonic()
        if self._looked_at is not None and now - self._looked_at <= FRESH_SECONDS:
            return False
        return self.refresh()

    def refresh(self) -> bool:
        """Read the file if it has changed; whether `table` is another one now."""
        self._looked_at = self._clock.monotonic()
        try:
            status = os.stat(self._file)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return False
            # A file that makes no sense is not looked at again, or told of, until it is replaced.
            self._seen = seen
            self.table = msgspec.json.decode(self._file.read_bytes(), type=RouteTable)
            self.is_read = True
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("The route table cannot be read and the last one stays: %s", error)
            return False
        return True
