"""Waits for the other hosts of a training job, as the scripts of AWS's examples do."""

import socket
import time
from collections.abc import Sequence

from .beta.framework.env import training_env

_TIMEOUT_SECONDS = 900.0
_POLL_SECONDS = 0.5


def _wait_hostname_resolution(
    sm_hosts: Sequence[str] | None = None, timeout_seconds: float = _TIMEOUT_SECONDS
) -> None:
    """Raises TimeoutError."""
    hosts = training_env().hosts if sm_hosts is None else sm_hosts
    deadline = time.monotonic() + timeout_seconds
    for host in hosts:
        while not _has_address(host):
            if time.monotonic() > deadline:
                raise TimeoutError(f"The host {host} had no address for {timeout_seconds:g} s.")
            time.sleep(_POLL_SECONDS)


def _has_address(host: str) -> bool:
    try:
        socket.gethostbyname(host)
    except OSError:
        return False
    return True
