"""Reads this machine's GPUs and their utilization from nvidia-smi, the driver's tool."""

import asyncio
import contextlib
import csv
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.errors import SagehenError

__all__ = ["DriverError", "Gpu", "GpuUsage", "NvidiaSmi"]

TOOL = "nvidia-smi"
TIMEOUT_SECONDS = 20.0
"""Without persistence mode the tool initializes each GPU, for seconds."""
KILLED_SECONDS = 1.0
MAX_OUTPUT_BYTES = 2**20
READ_BYTES = 64 * 1024
MAX_SHOWN_CHARACTERS = 200

_FIELDS = ("index", "uuid", "name", "memory.total")
_MIG_FIELD = "mig.mode.current"
"""unknown to drivers before 450"""
_USAGE_FIELDS = ("uuid", "utilization.gpu", "memory.used", "memory.total")
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}")
_LISTED_GPU = re.compile(r"GPU ([0-9]+): .*\(UUID: (GPU-[^)]+)\)")
_LISTED_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[^)]+)\)")


class DriverError(SagehenError):
    """nvidia-smi cannot be run, failed, hangs, or its output is not understood."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG device of a partitioned one."""

    id: str
    """nvidia-smi's index, or a MIG device's UUID; both CUDA and Docker accept it"""
    uuid: str
    name: str
    memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """The utilization of a GPU by all its processes, in percent."""

    compute: float
    memory: float


class NvidiaSmi:
    """Runs nvidia-smi, found on PATH.

    Args:
        orphans: told of the tool's process, so that it is not taken for a container's orphan.
    """

    def __init__(self, orphans: Orphans, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._orphans = orphans
        self._timeout_seconds = timeout_seconds

    @property
    def is_installed(self) -> bool:
        return shutil.which(TOOL) is not None

    async def list_gpus(self) -> list[Gpu]:
        """Lists MIG devices instead of GPUs with MIG enabled. Raises DriverError."""
        try:
            rows = await self._query((*_FIELDS, _MIG_FIELD))
        except _ToolFailed as failure:
            if _MIG_FIELD not in str(failure):
                raise
            rows = [[*row, "N/A"] for row in await self._query(_FIELDS)]
        gpus = [_gpu(row) for row in rows]
        partitioned = {
            gpu.uuid for gpu, row in zip(gpus, rows, strict=True) if row[-1] == "Enabled"
        }
        if not partitioned:
            return gpus
        devices = _mig_devices(await self._run("-L"))
        return [
            device
            for gpu in gpus
            for device in (devices.get(gpu.uuid, ()) if gpu.uuid in partitioned else (gpu,))
        ]

    async def usage(self) -> dict[str, GpuUsage]:
        """Returns the utilization by UUID, without GPUs that do not report it, such as partitioned
        ones. Raises DriverError."""
        usages: dict[str, GpuUsage] = {}
        for uuid, compute, used, total in await self._query(_USAGE_FIELDS):
            percent, used_mib, total_mib = _number(compute), _number(used), _number(total)
            if percent is not None and used_mib is not None and total_mib:
                usages[uuid] = GpuUsage(compute=percent, memory=100 * used_mib / total_mib)
        return usages

    async def _query(self, fields: Sequence[str]) -> list[list[str]]:
        query = f"--query-gpu={','.join(fields)}"
        output = await self._run(query, "--format=csv,noheader,nounits")
        rows = [row for row in csv.reader(output.splitlines(), skipinitialspace=True) if row]
        for row in rows:
            if len(row) != len(fields) or not any(_UUID.fullmatch(value) for value in row):
                raise DriverError(f"{TOOL} printed {_shown(','.join(row))!r} instead of a GPU")
        return rows

    async def _run(self, *arguments: str) -> str:
        # Started in the event loop's thread: nothing may look for orphans before `expect`.
        process = _start(arguments)
        self._orphans.expect(process.pid)
        try:
            output = await asyncio.to_thread(_read_all, process, self._timeout_seconds)
        except asyncio.CancelledError:
            process.kill()  # else the thread would hold up the agent's end
            raise
        finally:
            self._orphans.forget(process.pid)
        text = output.decode("utf-8", "replace").strip()
        if process.returncode != 0:
            raise _ToolFailed(
                f"{TOOL} failed with exit status {process.returncode}: {_shown(text)}"
            )
        return text


def _start(arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            (TOOL, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise DriverError(f"{TOOL} cannot be run: {error.strerror}") from error


def _read_all(process: "subprocess.Popen[bytes]", timeout_seconds: float) -> bytes:
    """Blocks until the tool has ended. Raises DriverError for too much output, or too late an
    end."""
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_seconds
    output = bytearray()
    try:
        with process.stdout as pipe:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            while poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                if not (chunk := os.read(pipe.fileno(), READ_BYTES)):
                    process.wait(max(0.0, deadline - time.monotonic()))
                    return bytes(output)
                output += chunk
                if len(output) > MAX_OUTPUT_BYTES:
                    raise DriverError(f"{TOOL} printed more than {MAX_OUTPUT_BYTES} bytes")
        raise subprocess.TimeoutExpired(TOOL, timeout_seconds)
    except subprocess.TimeoutExpired:
        raise DriverError(f"{TOOL} did not end within {timeout_seconds:g} s") from None
    finally:
        process.kill()
        # A hung driver holds its process in the kernel.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_SECONDS)


class _ToolFailed(DriverError):
    """nvidia-smi ended with an error."""


def _gpu(row: Sequence[str]) -> Gpu:
    index, uuid, name, memory = row[:4]
    if not index.isdecimal():
        raise DriverError(f"{TOOL} printed the index {_shown(index)!r}, which is no number")
    size = _number(memory)
    return Gpu(id=index, uuid=uuid, name=name, memory_mib=None if size is None else int(size))


def _mig_devices(listing: str) -> dict[str, list[Gpu]]:
    """Reads `nvidia-smi -L`; returns the MIG devices by their GPU's UUID."""
    devices: dict[str, list[Gpu]] = {}
    of_gpu: list[Gpu] = []
    for line in listing.splitlines():
        if gpu := _LISTED_GPU.match(line):
            of_gpu = devices.setdefault(gpu[2], [])
        elif mig := _LISTED_MIG.match(line):
            of_gpu.append(Gpu(id=mig[2], uuid=mig[2], name=f"MIG {mig[1]}"))
    return devices


def _number(text: str) -> float | None:
    """Returns None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def _shown(text: str) -> str:
    return " ".join(text.split())[:MAX_SHOWN_CHARACTERS]
