"""Agents without containers, behind the real agent's HTTP interface, for control_scale.py.

    simulated_agents.py PLAN.json

An instance is in service START_SECONDS after control has asked for it. One process has all agents:
one on the Unix socket of a home, or one for each node of a cluster, with the real TLS and the
real checks of epochs and route tables. Prints a line when all of them listen; ends with SIGTERM.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop
from counted_role import serve_counts

from sagehen.agent.app import create_app
from sagehen.agent.changes import Changes
from sagehen.agent.cluster_app import create_cluster_app
from sagehen.agent.control_lease import ControlLease
from sagehen.agent.messages import InstanceList, Sample
from sagehen.app.roles.common import serve_on, serving_tls
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import server_context
from sagehen.base.home import Home
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.frame.gpus import GpuList
from sagehen.frame.job_specs import JobList
from sagehen.frame.nodes import NodeDescription, Resources, RunningSpecs

START_SECONDS = 0.05
GAUGES = ("CPUUtilization", "MemoryUtilization", "DiskUtilization", "InstanceMemoryBytes")


class SimulatedNode(msgspec.Struct, frozen=True):
    """A node of a cluster."""

    node_id: str
    home: str
    listener: int
    """an inherited socket"""


class Plan(msgspec.Struct, frozen=True):
    counts: str
    """a Unix socket that tells what was counted"""
    instance_address: str
    """of all instances"""
    home: str = ""
    """of one machine; its agent's socket is there"""
    nodes: tuple[SimulatedNode, ...] = ()


class _NoJobs:
    """The part of the agent that runs jobs; nothing asks it for any here."""

    def __init__(self) -> None:
        self._changes = Changes(SYSTEM)

    def list(self) -> JobList:
        return JobList(version=self._changes.version, jobs=())

    async def wait_for_change(self, since: int, seconds: float) -> JobList:
        await self._changes.wait(since, seconds)
        return self.list()


class SimulatedAgent:
    """The methods of `Agent` that its HTTP interface calls for endpoints."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._specs: dict[str, InstanceSpec] = {}
        self._reports: dict[str, InstanceReport] = {}
        self._changes = Changes(SYSTEM)
        self.jobs = _NoJobs()

    def list_instances(self) -> InstanceList:
        reports = tuple(self._reports.values())
        return InstanceList(version=self._changes.version, instances=reports)

    async def wait_for_change(self, since: int, seconds: float) -> InstanceList:
        await self._changes.wait(since, seconds)
        return self.list_instances()

    async def put(self, spec: InstanceSpec) -> None:
        if spec.instance_id in self._specs:
            return
        self._specs[spec.instance_id] = spec
        self._report(spec.instance_id, InstanceState.STARTING)
        loop = asyncio.get_running_loop()
        loop.call_later(START_SECONDS, self._serve, spec.instance_id)

    def delete(self, instance_id: str) -> None:
        self._specs.pop(instance_id, None)
        if self._reports.pop(instance_id, None) is not None:
            self._changes.announce()

    def _serve(self, instance_id: str) -> None:
        if instance_id in self._specs:
            self._report(instance_id, InstanceState.IN_SERVICE)

    def _report(self, instance_id: str, state: InstanceState) -> None:
        serves = state is InstanceState.IN_SERVICE
        self._reports[instance_id] = InstanceReport(
            instance_id=instance_id,
            state=state,
            address=self._address if serves else None,
            slots=4 if serves else None,
            run_id=f"r-{instance_id}",
            setup_seconds=START_SECONDS,
        )
        self._changes.announce()

    def specs(self) -> RunningSpecs:
        return RunningSpecs(instances=tuple(self._specs.values()))

    async def samples(self) -> list[Sample]:
        return [
            Sample(
                name=name,
                endpoint=spec.endpoint_name,
                variant=spec.variant_name,
                instance=spec.instance_id,
                value=12.5,
            )
            for spec in self._specs.values()
            for name in GAUGES
        ]

    async def job_samples(self) -> list[Any]:
        return []

    async def problems(self) -> list[str]:
        return []

    def list_gpus(self) -> GpuList:
        return GpuList(gpus=())

    def keep_warm(self, images: object) -> None:
        """There are no fork servers."""


class _Echo(asyncio.Protocol):
    """The container of all instances: answers each request of a keep-alive connection."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, ends, body = self._received.partition(b"\r\n\r\n")
        if ends and len(body) >= _length(head):
            self._received = b""
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1")


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def main(plan: Plan) -> None:
    host, port = plan.instance_address.removeprefix("tcp:").rsplit(":", 1)
    loop = asyncio.get_running_loop()
    echo = await loop.create_server(_Echo, host, int(port), backlog=512)
    serve_counts(plan.counts)
    ending = asyncio.Event()
    async with AsyncExitStack() as stack:
        for node in plan.nodes:
            app = await _cluster_app(node, plan.instance_address)
            context = server_context(Home(Path(node.home)).cluster)
            listener = socket.socket(fileno=node.listener)
            await stack.enter_async_context(serving_tls(listener, context, app))
        print("ready", flush=True)
        if plan.home:
            app = create_app(SimulatedAgent(plan.instance_address))  # type: ignore[arg-type]
            await serve_on(Home(Path(plan.home)).agent_socket, app)
        else:
            loop.add_signal_handler(signal.SIGTERM, ending.set)
            await ending.wait()
    echo.close()


async def _cluster_app(node: SimulatedNode, address: str) -> Any:
    agent = SimulatedAgent(address)
    home = Home(Path(node.home))
    lease = ControlLease(f"run-{node.node_id}", home.cluster / "epoch", 600, SYSTEM)

    async def describe() -> NodeDescription:
        resources = Resources(cpus=1, memory_bytes=psutil.virtual_memory().total)
        return NodeDescription(
            node_id=node.node_id, run_id=lease.run_id, resources=resources, pids=(os.getpid(),)
        )

    app = create_app(agent)  # type: ignore[arg-type]
    return create_cluster_app(app, lease, describe, agent.specs, home.routes)


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
