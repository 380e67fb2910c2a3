"""Tells systemd what a service with `Type=notify` is doing: the protocol of sd_notify(3)."""

import os
import socket
from contextlib import suppress

__all__ = ["notify"]


def notify(state: str) -> None:
    """Sends lines such as `READY=1`. Does nothing where no service manager asks for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    # A server must not fail because nobody listens.
    with socket.socket(socket.AF_UNIX, kind) as sender, suppress(OSError):
        sender.sendto(state.encode(), address)
