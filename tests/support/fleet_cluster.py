"""A fleet of nodes whose agents are faked, on a clock that is moved."""

import asyncio

from sagehen.frame.nodes import Resources
from sagehen.placement.fleet import Fleet
from support.clock import SteppedClock
from support.node_agents import FakeNode, node_record

__all__ = ["SMALL", "Cluster"]

SMALL = Resources(cpus=4, memory_bytes=16 * 2**30)
"""room for two instances"""


class Cluster:
    """A fleet with its nodes, and short words for what tests do with them."""

    def __init__(self, tmp_path):
        self.clock = SteppedClock()
        self.routes_file = tmp_path / "routes.json"
        self.agents: dict[str, FakeNode] = {}
        self.fleet = self.make_fleet()
        self.records = {}

    def make_fleet(self):
        return Fleet(
            lambda record: self.agents[record.node_id],
            "a",
            self.routes_file,
            100,
            self.clock,
            "a:4",
        )

    async def begin(self, *names, **members):
        for name in names:
            self.agents.setdefault(name, FakeNode(name, self.clock))
            self.records[name] = node_record(name, **members)
        await self.set_nodes()
        await self.settle()

    async def set_nodes(self):
        await self.fleet.set_nodes(list(self.records.values()))

    async def change(self, name, **members):
        self.records[name] = node_record(name, **members)
        await self.set_nodes()
        await self.settle()

    async def settle(self):
        for _ in range(30):
            await asyncio.sleep(0)

    async def pass_time(self, seconds):
        for _ in range(round(seconds * 4)):
            await self.settle()
            self.clock.advance(0.25)
        await self.settle()
        await self.set_nodes()
        await self.settle()

    async def put(self, *specs):
        for spec in specs:
            await self.fleet.put_instance(spec)
        await self.settle()

    async def reports(self):
        listed = await self.fleet.instances()
        return {report.instance_id: report for report in listed.instances}

    async def places(self):
        return {key: report.node_id for key, report in (await self.reports()).items()}

    async def attempts(self):
        return {job.attempt_id: job for job in (await self.fleet.jobs()).jobs}

    def where(self, key):
        return {
            name
            for name, agent in self.agents.items()
            if key in agent.states or key in agent.job_reports
        }
