"""Starts the processes that build stores of offline results."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

import msgspec

from sagehen.base.pickled_settings import pickle_settings
from sagehen.base.settings import Settings
from sagehen.services.sagemaker.offline_results.building import BuildReport, BuildRequest

__all__ = ["StoreBuilder"]


class StoreBuilder:
    """Builds stores in processes of their own, which end with this one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = pickle_settings(settings)

    async def build(self, request: BuildRequest) -> BuildReport:
        """Reports a process that dies as a failure; ends the process when cancelled."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sagehen.app.roles.offline_results",
                f"--parent={os.getpid()}",
                stdin=PIPE,
                stdout=PIPE,
            )
        except OSError as error:
            return BuildReport(failure=f"The process that builds it cannot be started: {error}")
        try:
            report, _ = await process.communicate(self._settings + msgspec.json.encode(request))
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        try:
            return msgspec.json.decode(report, type=BuildReport)
        except msgspec.DecodeError:
            status = process.returncode
            return BuildReport(failure=f"The process that built it ended with status {status}.")
