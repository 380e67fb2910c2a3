"""The cost of a container's own network: requests, start and memory, with and without.

    python3 benchmarks/container_network.py [--seconds 3] [--repeats 7] [--save]

Two servers, which differ in the setting `container_network`, run the same command, which answers at
once: so a difference is the network's, as large as it can be. They are measured in turns.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
from frame import Measured, heading, keep, measure, middle, options, row_of
from machine import describe_machine
from other_load import OtherLoad
from sides import ROLE, Server, Side, server

from sagehen.agent.launchers.launcher import LaunchPlan, NetworkPlan
from sagehen.agent.launchers.process import ProcessLauncher

CONTAINER = Path(__file__).with_name("echo_container.py")
CONNECTIONS = (1, 64)
STARTS = 20
ROWS = ["1,2"]
SIDES = ("machine", "own")

Results = dict[tuple[str, int], list[Measured]]
"""by side and connections"""


def main() -> None:
    parser = options(__doc__, seconds=3)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, ExitStack() as stack:
        starts = asyncio.run(measure_starts(Path(folder)))
        running = {name: stack.enter_context(deployed(Path(folder) / name, name)) for name in SIDES}
        sides = [side for side, _ in running.values()]
        results = measure_all(sides, arguments.seconds, arguments.repeats, other_load)
        memory = helper_bytes(running["own"][1])
    report = render(results, starts, memory, other_load)
    print(report)
    if arguments.save:
        keep(report, "container-network")


@contextmanager
def deployed(folder: Path, network: str) -> Iterator[tuple[Side, Server]]:
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


def measure_all(
    sides: Sequence[Side], seconds: float, repeats: int, other_load: OtherLoad
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(repeats):
        for connections in CONNECTIONS:
            # In turns, and each first as often as the other.
            for side in sides if repeat % 2 else sides[::-1]:
                result = measure(side, ROWS, connections, seconds, other_load)
                results[side.name, connections].append(result)
                print(
                    f"{repeat + 1}/{repeats}  {side.name:8} {connections:3} connections "
                    f"{result['requests_per_second']:8.0f}/s  p99 {result['p99_ms']:.2f} ms",
                    file=sys.stderr,
                )
    return results


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


def helper_bytes(running: Server) -> list[int]:
    """The private memory of the programs that serve the container's network."""
    found = []
    for process in psutil.Process(running.pid).children(recursive=True):
        if process.name() in ("hand_over", "relay"):
            found.append(int(process.memory_full_info().uss))
    return found


def render(
    results: Results, starts: dict[str, float], memory: list[int], other_load: OtherLoad
) -> str:
    lines = [*heading("Networks of containers"), *describe_machine(), other_load.describe(), ""]
    lines += ["| connections | network | requests/s | p50, ms | p99, ms |", "|---|---|---|---|---|"]
    for (name, connections), measured in sorted(results.items(), key=lambda item: item[0][1]):
        cells = [f"{middle(measured, key):.3f}" for key in ("p50_ms", "p99_ms")]
        rate = f"{middle(measured, 'requests_per_second'):.0f}"
        lines.append(row_of([str(connections), name, rate, *cells]))
    lines.append("")
    for connections in CONNECTIONS:
        changes = [ratio(results, connections, key) for key in ("requests_per_second", "p99_ms")]
        lines.append(
            f"- {connections} connections, own beside machine, median of the pairs: "
            f"{changes[0]:+.1%} requests/s, {changes[1]:+.1%} p99"
        )
    lines += [
        f"- until a container is started: {starts['machine']:.1f} ms with the machine's network, "
        f"{starts['own']:.1f} ms with its own and all that serves it",
        f"- private memory of the programs that serve it: {sum(memory) / 2**20:.1f} MiB",
    ]
    return "\n".join([*lines, ""])


def ratio(results: Results, connections: int, key: str) -> float:
    """By how much the own network is above the machine's, as the median of measured pairs."""
    pairs = zip(results["own", connections], results["machine", connections], strict=True)
    return statistics.median(own[key] / machine[key] - 1 for own, machine in pairs)


if __name__ == "__main__":
    main()
