"""Builds of offline results as tests say, and variants that have some."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.offline_results.store import write_store
from sagehen.services.sagemaker.hosting.records import Deployment
from sagehen.services.sagemaker.offline_results.building import BuildReport, BuildRequest

RESULTS = OfflineResults(source="s3://results/job/", key="0", request_key="0")


def with_results(deployment: Deployment, **changes: Any) -> Deployment:
    """The deployment, all of its production variants with offline results."""
    results = msgspec.structs.replace(RESULTS, **changes)
    count = {"instance_count": 0} if results.only else {}
    variants = tuple(
        msgspec.structs.replace(variant, offline_results=results, **count)
        for variant in deployment.variants
    )
    return msgspec.structs.replace(deployment, variants=variants)


@dataclass
class MemoryBuilds:
    """Writes one row, or fails, as `reports` say; waits for `gate`."""

    folder: Path
    reports: list[BuildReport] = field(default_factory=list)
    """of the next builds; without one, a store is written"""
    requests: list[BuildRequest] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def build(self, request: BuildRequest) -> BuildReport:
        self.requests.append(request)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)  # as a process is waited for
            self.cancelled += 1
            raise
        if self.reports:
            return self.reports.pop(0)
        rows = [(b"7", request.file.encode())]
        return BuildReport(info=write_store(self.folder / request.file, rows, "print", 5.0))
