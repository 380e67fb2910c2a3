"""Stand-ins for nvidia-smi: a script in a folder for PATH, and an object that runs nothing."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sagehen.agent.gpus.driver import DriverError, Gpu, GpuUsage, NvidiaSmi
from sagehen.agent.launchers.orphans import Orphans

A10G = "NVIDIA A10G"

_TOOL = """#!/bin/sh
'''exec' "{python}" -ISs "$0" "$@"
' '''
import json, sys
gpus = json.loads(open({data!r}).read())
if "-L" in sys.argv:
    for gpu in gpus:
        print(f"GPU {{gpu['index']}}: {{gpu['name']}} (UUID: {{gpu['uuid']}})")
        for number, (profile, uuid) in enumerate(gpu["mig"]):
            print(f"  MIG {{profile}}     Device  {{number}}: (UUID: {{uuid}})")
    sys.exit()
[query] = [word for word in sys.argv if word.startswith("--query-gpu=")]
assert "--format=csv,noheader,nounits" in sys.argv, sys.argv
for gpu in gpus:
    print(", ".join(str(gpu[field]) for field in query.partition("=")[2].split(",")))
"""


def uuid_of(index: int) -> str:
    return f"GPU-0000000{index}-aaaa-bbbb-cccc-000000000000"


def describe_gpu(
    index: int, mig: Sequence[tuple[str, str]] = (), **fields: str | int
) -> dict[str, object]:
    return {
        "index": index,
        "uuid": uuid_of(index),
        "name": A10G,
        "memory.total": 23028,
        "memory.used": 5757,
        "utilization.gpu": 40,
        "mig.mode.current": "Enabled" if mig else "[N/A]",
        "mig": list(mig),
        **fields,
    }


def install_nvidia_smi(folder: Path, gpus: Sequence[dict[str, object]]) -> Path:
    """Writes the script, which reads the GPUs from a file beside it; returns the folder."""
    data = folder / "gpus.json"
    data.write_text(json.dumps(list(gpus)))
    return install_script(folder, _TOOL.format(python=sys.executable, data=str(data)))


def install_script(folder: Path, text: str) -> Path:
    tool = folder / "nvidia-smi"
    tool.write_text(text)
    tool.chmod(0o755)
    return folder


class ListedGpus(NvidiaSmi):
    """Lists GPUs named GPU-0 and so on, without running anything."""

    is_installed = True

    def __init__(self, count: int) -> None:
        super().__init__(Orphans())
        self.gpus = [
            Gpu(id=str(index), uuid=f"GPU-{index}", name="A10G", memory_mib=24000)
            for index in range(count)
        ]
        self.usages: dict[str, GpuUsage] = {}
        self.error: str | None = None
        self.lists = 0

    async def list_gpus(self) -> list[Gpu]:
        self.lists += 1
        await asyncio.sleep(0)
        if self.error:
            raise DriverError(self.error)
        return self.gpus

    async def usage(self) -> dict[str, GpuUsage]:
        if self.error:
            raise DriverError(self.error)
        return self.usages
