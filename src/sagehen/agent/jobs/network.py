"""A running job's addresses and port."""

import contextlib
import logging
import socket
from collections.abc import Sequence
from pathlib import Path

__all__ = ["SHARED_ADDRESS", "JobNetwork", "claim_network"]

log = logging.getLogger(__name__)

MAX_NETWORKS = 256
FIRST_PORT = 7777
"""where SageMaker's toolkits have the first host listen"""
SHARED_ADDRESS = "127.0.0.1"
_NETWORK_PREFIX = "127.77"
_CLAIM = "sagehen-job-network"
_ETC_HOSTS = Path("/etc/hosts")


class JobNetwork:
    """A job's addresses and port.

    Args:
        number: from 0; None if all are taken.
        claim: an open socket reserves `number`.
    """

    def __init__(self, number: int | None, claim: socket.socket | None = None) -> None:
        self._number = number
        self._claim = claim

    @property
    def master_port(self) -> int:
        """The port is unique per job, as torch listens at all addresses."""
        return FIRST_PORT + (self._number or 0)

    def address(self, host: int) -> str:
        """The address is unique on this machine; `host` counts from 1."""
        return (
            SHARED_ADDRESS if self._number is None else f"{_NETWORK_PREFIX}.{self._number}.{host}"
        )

    def hosts_file(self, hosts: Sequence[str]) -> str:
        """The job's names come first: the machine may have one of them."""
        job_lines = [f"{self.address(number)}\t{host}" for number, host in enumerate(hosts, 1)]
        try:
            machine_lines = _ETC_HOSTS.read_text(errors="replace")
        except OSError:
            machine_lines = ""
        return "\n".join([*job_lines, machine_lines])

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None


def claim_network() -> JobNetwork:
    """Claims a network that no job of any server on this machine has."""
    for number in range(MAX_NETWORKS):
        claim = _claim(number)
        if claim is not None:
            return JobNetwork(number, claim)
    log.warning(
        "No free network for a job: all its host names resolve to %s, which other jobs share.",
        SHARED_ADDRESS,
        extra={"action": "network"},
    )
    return JobNetwork(None)


def _claim(number: int) -> socket.socket | None:
    """Returns None if another job has the number, or its port is in use."""
    # Visible to all who share the loopback device; gone with this process.
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        claim.bind(f"\0{_CLAIM}-{number}")
        _check_port(FIRST_PORT + number)
    except OSError:
        claim.close()
        return None
    return claim


def _check_port(port: int) -> None:
    """Raises OSError."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
        probe.listen(1)
