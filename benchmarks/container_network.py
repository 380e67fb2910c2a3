"""The cost of a container's own network: requests, start and memory, with and without.

    python3 benchmarks/container_network.py [--seconds 0.1] [--blocks 10] [--save]

Two servers, which differ in the setting `container_network`, run the same command, which answers at
once: so a difference is the network's, as large as it can be. They are measured in short turns.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from frame import heading, keep, options
from machine import describe_machine
from other_load import OtherLoad
from short_turns import Blocks, Contender, compare, container_memory, describe
from sides import ROLE, Server, Side, server

from sagehen.agent.launchers.launcher import LaunchPlan, NetworkPlan
from sagehen.agent.launchers.process import ProcessLauncher

CONTAINER = Path(__file__).with_name("echo_container.py")
CONNECTIONS = (1, 64)
STARTS = 20
PACKAGES = ("sagehen", "uvloop", "httptools")
SIDES = ("machine", "own")


def main() -> None:
    parser = options(__doc__, seconds=0.1)
    parser.add_argument("--blocks", type=int, default=10, help="of short turns")
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, ExitStack() as stack:
        starts = other_load.undisturbed(lambda: asyncio.run(measure_starts(Path(folder))))
        running = [stack.enter_context(deployed(Path(folder) / name, name)) for name in SIDES]
        results = compare(
            running, "1,2", CONNECTIONS, arguments.seconds, arguments.blocks, other_load
        )
        memory = container_memory(running[1][1])
    report = render(results, starts, memory, other_load)
    print(report)
    if arguments.save:
        keep(report, "container-network")


@contextmanager
def deployed(folder: Path, network: str) -> Iterator[Contender]:
    images = json.dumps({"echo": [sys.executable, str(CONTAINER)]})
    settings = {"SAGEHEN_IMAGES": images, "SAGEHEN_CONTAINER_NETWORK": network}
    with server(folder, **settings) as running:
        create_endpoint(running)
        host, port = running.address
        yield Side(network, host, port, partial(running.signed_request, "echo")), running


def create_endpoint(running: Server) -> None:
    sagemaker = running.client("sagemaker")
    sagemaker.create_model(
        ModelName="echo", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo"}
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "echo",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName="echo", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="echo", EndpointConfigName="echo")
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="echo", WaiterConfig={"Delay": 1, "MaxAttempts": 60})


async def measure_starts(folder: Path) -> dict[str, float]:
    """The median milliseconds from the start of a container to its command's end, by side."""
    taken: dict[str, list[float]] = defaultdict(list)
    for number in range(2 * STARTS):
        name = SIDES[number % 2]
        network = NetworkPlan(outgoing=True, handoff=folder / "handoff")
        plan = LaunchPlan(
            instance_id="i-1",
            name="primary",
            command=("/bin/true",),
            environment={},
            folder=folder,
            log=folder / "log",
            log_bytes=2**20,
            network=network if name == "own" else None,
        )
        began = time.perf_counter()
        process = await ProcessLauncher().start(plan)
        taken[name].append((time.perf_counter() - began) * 1000)
        await process.wait()
    return {name: statistics.median(times) for name, times in taken.items()}


def render(
    results: Blocks, starts: dict[str, float], memory: dict[str, int], other_load: OtherLoad
) -> str:
    lines = [*heading("Networks of containers"), *describe_machine(PACKAGES)]
    lines += [other_load.describe(), "", *describe(results)]
    helpers = ", ".join(f"{name} {memory[name] / 2**20:.1f}" for name in ("relay", "hand_over"))
    lines += [
        f"- until a container is started, median of {STARTS}: {starts['machine']:.1f} ms with the "
        f"machine's network, {starts['own']:.1f} ms with its own and all that serves it",
        f"- memory of what serves the network, PSS in MiB: {helpers}",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
