"""Agents of a cluster's nodes as processes, each with a home of its own; the test is control."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from sagehen.agent.client import NodeClient
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import (
    Authority,
    client_context,
    issue,
    server_name,
    write_certificate,
)
from sagehen.base.errors import SagehenError
from sagehen.base.home import Home, prepare_home
from sagehen.base.pickled_settings import pickle_settings
from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.frame.nodes import LeaseRequest
from sagehen.frame.routes import NodeRoute, RouteTable
from sagehen.http1.pool import Tls
from support.fixtures.cluster import join
from support.state import settings_of

__all__ = ["AgentProcess", "tell_nodes"]

FAKE = Path(__file__).with_name("fixtures") / "fake_container.py"
POLL_SECONDS = 0.05
PLAIN = {
    "images": {"fake": [sys.executable, str(FAKE)]},
    "cgroups": False,
    "mount_opt_ml": False,
    "container_network": "machine",
    "container_processes": "machine",
    "fork_servers": 0,
}


class AgentProcess:
    """`settings`: besides PLAIN."""

    def __init__(self, authority: Authority, number: int, **settings: Any) -> None:
        self.node_id = f"n{number}"
        self.folder = Path(tempfile.mkdtemp(prefix="sga"))
        self.home: Home = prepare_home(self.folder / "home")
        join(self.home, authority, self.node_id)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self._settings = settings_of(self.home.path, **PLAIN, **settings)
        control = self.folder / "control"
        write_certificate(control, issue(authority, "control", has_control=True))
        tls = Tls(client_context(control), server_name(self.node_id))
        self.client = NodeClient(self.address, tls, lambda: 1, SYSTEM)
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        descriptor = self.listener.fileno()
        module = ["-m", "sagehen.app.roles.agent", f"--parent={os.getpid()}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *module, f"--socket={descriptor}"],
                stdin=subprocess.PIPE,
                stderr=log,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(pickle_settings(self._settings))
        self.process.stdin.close()

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    async def is_ready(self) -> None:
        """Waits until the agent answers. Raises TimeoutError with its last refusal."""
        refusal: SagehenError | None = None
        try:
            async with asyncio.timeout(120):
                while True:
                    assert self.process.poll() is None, self.log.read_text()
                    try:
                        await self.client.renew_lease(LeaseRequest(seconds=8), 10)
                        return
                    except SagehenError as error:
                        refusal = error
                        await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"{self.node_id}: {refusal}") from refusal

    async def start_instance(self, instance_id: str, url: str, **container: Any) -> None:
        spec = InstanceSpec(
            instance_id=instance_id,
            endpoint_name="houses",
            variant_name="AllTraffic",
            instance_type="ml.m5.large",
            containers=(
                ContainerSpec(
                    hostname="primary",
                    image="fake",
                    model_data_url=url,
                    environment={"FAKE_CONTROL": str(self.folder)},
                    **container,
                ),
            ),
        )
        await self.client.put_instance(spec)

    async def is_in_service(self, *instance_ids: str) -> None:
        async with asyncio.timeout(120):
            while True:
                reports = (await self.client.instances()).instances
                states = {each.instance_id: each.state for each in reports}
                assert InstanceState.FAILED not in states.values(), reports
                if all(states[each] is InstanceState.IN_SERVICE for each in instance_ids):
                    return
                await asyncio.sleep(POLL_SECONDS)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.listener.close()

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


async def tell_nodes(agents: list[AgentProcess], version: int) -> None:
    """Sends all agents the route table, as control does."""
    nodes = {
        each.node_id: NodeRoute(peer_address="", agent_address=each.address) for each in agents
    }
    table = msgspec.json.encode(RouteTable(routes={}, nodes=nodes, version=version))
    for each in agents:
        if each.process.poll() is None:
            await each.client.put_routes(table)
