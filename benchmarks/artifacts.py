"""A model that starts on many nodes at once: fetched from one another, or by each from the store.

    .venv/bin/python benchmarks/artifacts.py [--nodes 8] [--mib 1024]

Each node is an agent's process with a home of its own, and the store is an S3 in this process. It
is a table of the store's reads, the time until all instances are in service, and the processor time
of all agents with their containers. The network is the loopback, and all nodes share this machine's
processors and disk: what a real cluster gains is the store's bandwidth, which the bytes show.
"""

import argparse
import asyncio
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from machine import describe_machine

from sagehen.base.cluster_certificates import make_authority
from sagehen.state.migrate import upgrade
from support.agent_processes import AgentProcess, tell_nodes
from support.counting_s3 import CountingS3

PIECE_BYTES = 2**20
INSTANCE = "i-1"
URL = "s3://models/large.tar.gz"


def make_archive(folder: Path, mib: int) -> Path:
    weights, archive = folder / "weights", folder / "model.tar.gz"
    with weights.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(PIECE_BYTES))
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(weights, "weights")
    weights.unlink()
    return archive


def processor_seconds(agents: list[AgentProcess]) -> float:
    total = 0.0
    for agent in agents:
        top = psutil.Process(agent.process.pid)
        for each in [top, *top.children(recursive=True)]:
            used = each.cpu_times()
            total += used.user + used.system
    return total


async def measure(store: CountingS3, folder: Path, nodes: int, by_neighbours: bool) -> str:
    state = folder / f"state-{by_neighbours}.db"
    upgrade(f"sqlite:///{state}")
    authority = make_authority()
    agents = [
        AgentProcess(
            authority,
            number,
            object_store_url="s3://counted",
            object_store_options=store.options,
            database_url=f"sqlite:///{state}",
        )
        for number in range(nodes)
    ]
    try:
        for agent in agents:
            agent.start()
        await asyncio.gather(*(agent.is_ready() for agent in agents))
        if by_neighbours:
            await tell_nodes(agents, 1)
        store.reads.clear()
        store.bytes = 0
        used, began = processor_seconds(agents), time.monotonic()
        await asyncio.gather(*(agent.start_instance(INSTANCE, URL) for agent in agents))
        await asyncio.gather(*(agent.is_in_service(INSTANCE) for agent in agents))
        seconds = time.monotonic() - began
        used = processor_seconds(agents) - used
    finally:
        for agent in agents:
            agent.close()
    side = "from one another" if by_neighbours else "each from the store"
    reads, mib = sum(store.reads.values()), store.bytes / 2**20
    return f"| {side} | {reads} | {mib:.0f} MiB | {seconds:.1f} s | {used:.1f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--mib", type=int, default=1024, help="of the model")
    arguments = parser.parse_args()
    print("\n".join(describe_machine()))
    print(f"\n{arguments.nodes} nodes, a model of {arguments.mib} MiB\n")
    print("| model data | reads of the store | bytes of the store | time | processor time |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, CountingS3() as store:
        folder = Path(name)
        store.put("models/large.tar.gz", make_archive(folder, arguments.mib))
        for by_neighbours in (False, True):
            print(asyncio.run(measure(store, folder, arguments.nodes, by_neighbours)), flush=True)


if __name__ == "__main__":
    main()
