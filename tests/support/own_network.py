"""A network of the tests' own: what they set up there, such as a firewall, is gone afterwards."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sagehen.agent.launchers.container_network import bring_up_loopback

__all__ = ["own_network"]

CLONE_NEWNET = 0x40000000
OWN = "/proc/thread-self/ns/net"


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and the processes that it starts, see a loopback device only. It needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network of one's own: {os.strerror(ctypes.get_errno())}")
        try:
            bring_up_loopback()
            yield
        finally:
            assert libc.setns(before, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(before)
