"""Processes in network namespaces of their own, where this kernel allows them to this user."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-current-user"]
may_unshare_network = pytest.mark.skipif(
    subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="the kernel lets this user make no network namespaces",
)

LO_UP = """
import fcntl, socket, struct
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
"""


@contextmanager
def in_own_network(code: str, *, user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program in its own namespace, once it has written a line; killed afterwards."""
    command = UNSHARE if user is None else ["unshare", "--net", "--map-root-user"]
    process = subprocess.Popen(
        [*command, "/usr/bin/python3" if user is not None else sys.executable, "-c", LO_UP + code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        user=user,
        cwd="/",
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the program has not started"
        yield process
    finally:
        process.kill()
        process.communicate()
