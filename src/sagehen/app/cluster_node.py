"""A node without a control: gateways and an agent under a supervisor.

Its starter passes a NodeStart on standard input and gets its addresses as a line of JSON. The node
ends at once when its standard input is closed; on SIGTERM its instances move to other nodes first.
It dies with its starter.
"""

import argparse
import asyncio
import io
import os
import pickle
import select
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sagehen.app.cluster import NodeAddresses, prepare_node, take_keys
from sagehen.app.control_relay import serving_control_relay
from sagehen.app.leaving import leave_cluster
from sagehen.app.server import listening, make_agent, make_gateways
from sagehen.app.supervisor import Supervisor
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import NodeCertificate
from sagehen.base.concurrency import first_of
from sagehen.base.credentials import Credentials, write_secret
from sagehen.base.home import Home, keeping_private, locked, prepare_home
from sagehen.base.pickled_settings import unpickle_settings, with_values
from sagehen.base.processes import die_with_parent
from sagehen.gateway.routing.inflight import create_inflight_table

__all__ = ["NodeStart"]

PREDECESSOR_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class NodeStart:
    """The identity and the secrets with which a node starts."""

    node_id: str
    certificate: NodeCertificate
    keys: Credentials
    token: str
    settings: bytes
    """pickled; those of the cluster, with the node's own host"""
    objects: Path | None = None
    """the folder of objects, where all nodes are on one machine"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="sagehen.app.cluster_node")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    start: NodeStart = pickle.load(sys.stdin.buffer)
    asyncio.run(_run(start, arguments.home, arguments.host))


async def _run(start: NodeStart, folder: Path, host: str) -> None:
    plain = with_values(start.settings, home=folder)
    settings = unpickle_settings(io.BytesIO(plain))
    home = _prepare(start, Home(folder))
    with keeping_private() as umask, locked(home), ExitStack() as stack:
        take_keys(home, start.keys, start.token)
        # Of the last run: its gateways know no endpoint before control sends them.
        home.routes.unlink(missing_ok=True)
        home.cluster.mkdir(mode=0o700, exist_ok=True)
        write_secret(home.node_id, start.node_id.encode())
        listeners = stack.enter_context(listening(settings))
        port = listeners[0].getsockname()[1]
        node = stack.enter_context(
            prepare_node(home, host, port, settings.cluster_port, start.certificate)
        )
        create_inflight_table(home.inflight_table, len(listeners))
        roles = (*make_gateways(home, listeners, node), make_agent(node))
        supervisor = Supervisor(roles, settings, dict(os.environ), SYSTEM, umask)
        async with serving_control_relay(home, SYSTEM):
            await _until_ended(supervisor, node.addresses, home, settings.cluster_leave_seconds)


def _prepare(start: NodeStart, home: Home) -> Home:
    _end_predecessor(home)
    if start.objects is not None and not home.objects.exists():
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.objects.symlink_to(start.objects)
    return prepare_home(home.path)


def _end_predecessor(home: Home) -> None:
    """Ends a node's processes of which Ray knows no more: its node there died alone."""
    try:
        pid = int(home.lock.read_text())
        # Opened first, so that what is read and killed is one process, whatever gets its number.
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"sagehen.app.cluster_node" in command and os.fsencode(home.path) in command:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], PREDECESSOR_SECONDS)
    except OSError:
        return  # it has ended by itself
    finally:
        os.close(descriptor)


async def _until_ended(
    supervisor: Supervisor, addresses: NodeAddresses, home: Home, leave_seconds: float
) -> None:
    ending, leaving = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leaving.set)
    loop.add_reader(sys.stdin.fileno(), ending.set)
    try:
        await supervisor.start()
        sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
        sys.stdout.flush()
        await first_of(ending.wait(), leaving.wait())
        if not ending.is_set():
            url, node_id = f"http://{addresses.gateway}", addresses.node_id
            leave = leave_cluster(home, url, node_id, leave_seconds, SYSTEM, _report)
            await first_of(ending.wait(), leave)
    finally:
        await supervisor.stop()


def _report(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
