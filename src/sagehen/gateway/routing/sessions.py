"""Sticky sessions, in files shared by all gateways.

A file is named by endpoint and id, and its modification time is the session's expiry. Sessions thus
outlive gateways and cost other requests nothing.
"""

import logging
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import msgspec

from sagehen.base.clock import Clock
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.http1.fields import Headers

__all__ = ["NEW_SESSION", "Sessions", "StickySession"]

NEW_SESSION = "NEW_SESSION"
"""SessionId that begins a session"""
SESSION_SECONDS = 1200.0
"""without an expiry; the containers' own default"""
LONGEST_SECONDS = 365 * 86400.0
"""that a session may last, whatever its container or another node says"""
CLOCK_SKEW_SECONDS = 3600.0
"""between nodes, of which each bounds its sessions by its own clock"""
DRAFT_SECONDS = 60.0
"""grace for files being written, which have no expiry yet"""

_NEW_SESSION_HEADERS = (b"x-amzn-sagemaker-new-session-id", b"x-amzn-sagemaker-session-id")
_CLOSED_SESSION_HEADERS = (b"x-amzn-sagemaker-closed-session-id",)
_EXPIRES = re.compile(r"expires\s*=\s*(\S+)", re.IGNORECASE)
_SESSION_NAME = re.compile(r"[0-9a-f]{64}")
_FILE_NAMES = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}\.new")

log = logging.getLogger(__name__)


class StickySession(msgspec.Struct, frozen=True):
    """The variant and the instance that hold a session."""

    variant: str
    instance_id: str
    run_id: str
    """restarted instances have lost their sessions"""
    expires: float
    """seconds since the epoch"""

    def is_held_by(self, instance: RoutedInstance) -> bool:
        return (self.instance_id, self.run_id) == (instance.instance_id, instance.run_id)


class Sessions:
    """Reads and writes sessions in `folder`, which all gateways share."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self.on_change: Callable[[str, bytes], None] = lambda name, content: None
        """called with the file name and the content, which is empty at the end of a session"""
        folder.mkdir(mode=0o700, exist_ok=True)

    def find(self, endpoint: str, session_id: str) -> StickySession | None:
        """Returns None for an ended or unknown session. Raises OSError."""
        try:
            content = self._file(endpoint, session_id).read_bytes()
            session = msgspec.json.decode(content, type=StickySession)
        except (FileNotFoundError, ValueError):
            return None
        return session if session.expires > self._clock.now() else None

    def record_answer(
        self,
        requested_id: str,
        endpoint: str,
        variant: str,
        instance: RoutedInstance,
        headers: Headers,
    ) -> bytes:
        """Begins or ends a session as the container says; returns the caller's header lines. Raises
        OSError."""
        if requested_id != NEW_SESSION:
            closed = _first(headers, _CLOSED_SESSION_HEADERS)
            if closed is None:
                return b""
            file = self._file(endpoint, requested_id)
            file.unlink(missing_ok=True)
            self.on_change(file.name, b"")
            return b"X-Amzn-SageMaker-Closed-Session-Id: %b\r\n" % closed
        begun = _first(headers, _NEW_SESSION_HEADERS)
        if begun is None:
            return b""
        session_id, expires = self._parse(begun.decode("latin-1"))
        if expires > self._clock.now():
            session = StickySession(variant, instance.instance_id, instance.run_id, expires)
            file = self._file(endpoint, session_id)
            content = msgspec.json.encode(session)
            self._write(file, content, expires)
            self.on_change(file.name, content)
        return b"X-Amzn-SageMaker-New-Session-Id: %b\r\n" % begun

    def copy(self, name: str, content: bytes) -> None:
        """Keeps a session that a gateway of another node has begun or ended. Raises OSError."""
        if _SESSION_NAME.fullmatch(name) is None:
            raise OSError(f"{name!r} cannot be the file of a session")
        if not content:
            (self._folder / name).unlink(missing_ok=True)
            return
        try:
            session = msgspec.json.decode(content, type=StickySession)
        except ValueError as error:
            raise OSError(f"a session cannot be read: {error}") from error
        if not 0 <= session.expires <= self._clock.now() + LONGEST_SECONDS + CLOCK_SKEW_SECONDS:
            raise OSError(f"a session cannot expire at {session.expires:g} s since the epoch")
        self._write(self._folder / name, content, session.expires)

    def sweep(self) -> None:
        """Removes expired files. May be slow: not for the event loop."""
        now = self._clock.now()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not _FILE_NAMES.fullmatch(entry.name):
                    continue
                try:
                    if entry.stat().st_mtime <= now - DRAFT_SECONDS:
                        os.unlink(entry.path)
                except FileNotFoundError:
                    continue  # another gateway was quicker

    def _file(self, endpoint: str, session_id: str) -> Path:
        # Ids may be too long for file names, and file systems may ignore case.
        return self._folder / sha256(f"{endpoint}\0{session_id}".encode()).hexdigest()

    def _parse(self, value: str) -> tuple[str, float]:
        """Parses `<id>; Expires=<time>`."""
        session_id, _, rest = value.partition(";")
        expires = self._clock.now() + SESSION_SECONDS
        if (match := _EXPIRES.search(rest)) is not None:
            try:
                at = datetime.fromisoformat(match[1])
                expires = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
            except ValueError:
                log.warning("The expiry of a container's session is not a time: %s", value)
        return session_id.strip(), min(expires, self._clock.now() + LONGEST_SECONDS)

    def _write(self, file: Path, content: bytes, expires: float) -> None:
        draft = file.with_name(f"{uuid4().hex}.new")
        draft.write_bytes(content)
        os.utime(draft, (expires, expires))
        draft.replace(file)


def _first(headers: Headers, names: tuple[bytes, ...]) -> bytes | None:
    for expected in names:
        for name, value in headers:
            if name.lower() == expected:
                return value
    return None
