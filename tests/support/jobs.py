"""The jobs of an agent, without the agent around them."""

import asyncio
from collections.abc import Callable
from typing import Any

from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.jobs import JobAttempts
from sagehen.frame.job_specs import JobReport, JobSpec

LOOK_SECONDS = 2.03
"""From one look at checkpoints to the next: nothing else is waited for so long."""

MakeSpec = Callable[..., JobSpec]


class JobsUnderTest:
    """The jobs of an agent, and ways to wait for what they report."""

    def __init__(self, around: JobContext) -> None:
        self.around = around
        self.jobs = JobAttempts(around)

    async def reports(self, until: Callable[[JobReport], Any], attempt: str = "j-1") -> JobReport:
        """The attempt's report, as soon as it is so."""
        async with asyncio.timeout(120):
            listed = self.jobs.list()
            while True:
                found = {report.attempt_id: report for report in listed.jobs}.get(attempt)
                if found is not None and until(found):
                    return found
                listed = await self.jobs.wait_for_change(listed.version, 30)

    async def ends(self, attempt: str = "j-1") -> JobReport:
        return await self.reports(lambda report: report.outcome, attempt)

    async def trains(self, attempt: str = "j-1") -> JobReport:
        return await self.reports(lambda report: len(report.phases) == 3, attempt)

    async def turn(self) -> None:
        """Let others have a moment: for what can only be looked at."""
        await asyncio.sleep(0.005)

    async def run(self, spec: JobSpec) -> JobReport:
        """From its PUT to its end."""
        self.jobs.put(spec)
        return await self.ends(spec.attempt_id)

    async def is_gone(self, attempt: str = "j-1") -> None:
        listed = self.jobs.list()
        async with asyncio.timeout(120):
            while any(report.attempt_id == attempt for report in listed.jobs):
                listed = await self.jobs.wait_for_change(listed.version, 30)
