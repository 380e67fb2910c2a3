"""Trains one model on several hosts: `rabit_run` of AWS's image, for XGBoost 2.1 and newer."""

import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sagemaker_containers.entry_point import _wait_hostname_resolution as wait_hostname_resolution

__all__ = ["rabit_run", "wait_hostname_resolution"]

_PORT = 9099
_CONNECT_SECONDS = 120.0
_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


def rabit_run(
    exec_fun: Callable[..., Any],
    args: dict[str, Any],
    include_in_training: bool,
    hosts: Sequence[str],
    current_host: str,
    first_port: int | None = None,
    second_port: int | None = None,
    max_connect_attempts: int | None = None,
    connect_retry_timeout: float = 10,
    update_rabit_args: bool = False,
) -> None:
    """Calls `exec_fun` on the hosts that have data, and ends the others' process.

    The first round finds out which hosts have data. A host tries each second to connect, for two
    minutes, whatever `max_connect_attempts` and `connect_retry_timeout` say.
    """
    port = first_port or _PORT
    with _joined(hosts, current_host, port) as group:
        taking_part = group.hosts_with(include_in_training)
    if not include_in_training:
        log.warning("The host %s has no data and takes no part in training.", current_host)
        sys.exit(0)
    with _joined(taking_part, current_host, second_port or port + 1) as group:
        if update_rabit_args:
            args["is_master"] = group.is_master
        exec_fun(**args)


class _Group(NamedTuple):
    hosts: list[str]
    """in the order of their ranks"""
    is_master: bool

    def hosts_with(self, flag: bool) -> list[str]:
        """Exchanges a flag of each host."""
        if len(self.hosts) == 1:
            return [host for host in self.hosts if flag]
        from xgboost import collective

        rank = collective.get_rank()
        mine = json.dumps([self.hosts[rank], bool(flag)])
        sent = [
            json.loads(collective.broadcast(mine if rank == root else "", root))
            for root in range(len(self.hosts))
        ]
        return [host for host, has_flag in sent if has_flag]


@contextmanager
def _joined(hosts: Sequence[str], current_host: str, port: int) -> Iterator[_Group]:
    ordered = sorted(hosts)
    if len(ordered) == 1:
        yield _Group(ordered, True)
        return
    from xgboost.tracker import RabitTracker

    is_master = current_host == ordered[0]
    address = socket.gethostbyname(ordered[0])
    tracker = None
    if is_master:
        tracker = RabitTracker(n_workers=len(ordered), host_ip=address, port=port, sortby="task")
        tracker.start()
    try:
        options = {
            "dmlc_tracker_uri": address,
            "dmlc_tracker_port": port,
            "dmlc_task_id": str(ordered.index(current_host)),
        }
        context = _connected(options)
        try:
            yield _Group(ordered, is_master)
        finally:
            context.__exit__()
        if tracker is not None:
            tracker.wait_for()
    finally:
        if tracker is not None:
            tracker.free()


def _connected(options: Mapping[str, Any]) -> Any:
    """Retries, as the master's tracker may start later. Raises XGBoostError."""
    from xgboost import collective
    from xgboost.core import XGBoostError

    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        context = collective.CommunicatorContext(**options)
        try:
            context.__enter__()
        except XGBoostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return context
