"""Fetches an artifact, or a file, from another node, in a thread. An artifact's stream is checked
and unpacked as it comes, as that of any untrusted archive."""

import hashlib
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from sagehen.agent.artifacts.folders import is_disk_full
from sagehen.agent.artifacts.unpack import make_read_only, unpack_plain
from sagehen.base.cluster_certificates import server_name
from sagehen.base.errors import ArtifactRejected, SagehenError

__all__ = ["NeighbourError", "ReceivedStream", "download", "download_file"]

CONNECT_SECONDS = 5.0
STALL_SECONDS = 15.0
GRACE_SECONDS = 15.0
"""then the neighbour must have been as fast as SLOWEST_BYTES_PER_SECOND"""
SLOWEST_BYTES_PER_SECOND = 2**20
DROP_BYTES = 2**16
WRITE_BYTES = 2**20


class NeighbourError(SagehenError):
    """The artifact cannot be fetched from this node."""


class ReceivedStream:
    """A stream that is read once; counts and hashes its bytes.

    Args:
        read: returns some bytes, at most as many as asked for; none at the end.
        is_cancelled: ends the reading with NeighbourError.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        monotonic: Callable[[], float],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._is_cancelled = is_cancelled
        self._began = monotonic()
        self._digest = hashlib.sha256()
        self._position = 0

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        """Returns fewer than `size` bytes at the end only."""
        parts = []
        while size > 0 and (data := self._read_some(size)):
            parts.append(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        # Looked at with each piece that comes: a trickle would fill `size` only in hours.
        if self._is_cancelled():
            raise NeighbourError("it is not wanted any more")
        data = self._read(size)
        self._digest.update(data)
        self._position += len(data)
        seconds = self._monotonic() - self._began
        if seconds > GRACE_SECONDS and self._position < seconds * SLOWEST_BYTES_PER_SECOND:
            raise NeighbourError(f"it is slow: {self._position} bytes in {seconds:.0f} s")
        return data

    def seek(self, position: int) -> int:
        """Forwards only."""
        while self._position < position:
            if not self.read(min(DROP_BYTES, position - self._position)):
                break
        return self._position

    def check_digest(self, expected: str) -> None:
        """Reads the rest. Raises NeighbourError."""
        while self.read(DROP_BYTES):
            pass
        if self._digest.hexdigest() != expected:
            raise NeighbourError("its content is not what was fetched from the store")


def download(
    node_id: str,
    address: str,
    path: str,
    digest: str,
    folder: Path,
    context: ssl.SSLContext,
    monotonic: Callable[[], float],
    cancelled: threading.Event,
    *,
    max_bytes: int,
) -> int:
    """Fills the empty `folder`, read-only; returns its bytes. Blocks. On failure the caller removes
    the folder.

    Raises:
        NeighbourError: the node does not answer, is slow, or its content is not that of `digest`.
        OSError: the disk is full.
    """
    with _stream(node_id, address, path, context, monotonic, cancelled) as stream:
        unpacked = unpack_plain(cast("BinaryIO", stream), folder, max_bytes=max_bytes)
        stream.check_digest(digest)
    make_read_only(folder)
    return unpacked.size_bytes


def download_file(
    node_id: str,
    address: str,
    path: str,
    file: Path,
    context: ssl.SSLContext,
    monotonic: Callable[[], float],
    cancelled: threading.Event,
) -> None:
    """Writes a new `file`, which is durable on return. Blocks. On failure the caller removes it.
    Raises as `download` does."""
    with (
        _stream(node_id, address, path, context, monotonic, cancelled) as stream,
        file.open("wb") as target,
    ):
        while data := stream.read(WRITE_BYTES):
            target.write(data)
        target.flush()
        os.fsync(target.fileno())


@contextmanager
def _stream(
    node_id: str,
    address: str,
    path: str,
    context: ssl.SSLContext,
    monotonic: Callable[[], float],
    cancelled: threading.Event,
) -> Iterator[ReceivedStream]:
    """Requests a path of another node's agent. Errors become NeighbourError, but for those of a
    full disk."""
    try:
        with _connect(node_id, address, context) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            with http.client.HTTPResponse(connection) as response:
                response.begin()
                if response.status != 200:
                    raise NeighbourError(f"it answered with HTTP {response.status}")
                yield ReceivedStream(response.read1, monotonic, cancelled.is_set)
    except OSError as error:
        if is_disk_full(error):
            raise
        raise NeighbourError(str(error)) from error
    except (http.client.HTTPException, ArtifactRejected) as error:
        raise NeighbourError(str(error)) from error


def _connect(node_id: str, address: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
    try:
        plain.settimeout(STALL_SECONDS)
        return context.wrap_socket(plain, server_hostname=server_name(node_id))
    except BaseException:
        plain.close()
        raise
