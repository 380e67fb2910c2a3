"""The cost of control, and of a gateway, with 10, 100 and 1,000 endpoints of two instances each.

    python3 benchmarks/control_scale.py [--sizes 10,100,1000] [--nodes 20] [--postgres] [--save]

Control and a gateway are the server's own processes with the real API and the real state; the
agents are simulated at their HTTP interface (simulated_agents.py), as processes of 2,000 instances
do not fit on a machine. With `--nodes`, they are the nodes of a cluster, over TLS, and control
places the instances; without, the agent of one machine. Counts and processor times do not depend on
what else the machine does; wall times do.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from control_processes import ADDED, INSTANCES, Counts, Sides, running_sides, until
from frame import heading, keep, numbers, row_of
from load import load
from machine import describe_machine
from postgres_server import postgres
from sides import IMAGE, ROLE, Server

from sagehen.frame.routes import RouteTable

CALLS = 50
INVOCATIONS = 4000
CONNECTIONS = 8
SETTLE_SECONDS = 3.0


@dataclass
class Result:
    """The measurements at one size."""

    endpoints: int
    values: dict[str, float] = field(default_factory=dict)


def main() -> None:
    arguments = parse_arguments()
    with ExitStack() as stack:
        url = stack.enter_context(postgres() if arguments.postgres else nullcontext(None))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sgh-")))
        sides = stack.enter_context(running_sides(folder, url, arguments.nodes, arguments.sizes))
        define(sides.server)
        results = []
        deployed = 0
        for size in arguments.sizes:
            results.append(measure(sides, deployed, size, arguments))
            deployed = size
            print(json.dumps(results[-1].values), file=sys.stderr)
    report = render(results, arguments)
    print(report)
    if arguments.save:
        state = "postgresql" if arguments.postgres else "sqlite"
        keep(report, f"control-scale-{state}-{arguments.nodes or 'one'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=numbers, default=[10, 100, 1000], help="in rising order")
    parser.add_argument("--nodes", type=int, default=0, help="of a cluster; 0: one machine")
    parser.add_argument("--postgres", action="store_true", help="keep the state there")
    parser.add_argument("--seconds", type=float, default=20, help="of each look at an idle server")
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    return parser.parse_args()


# The measurements


def define(server: Server) -> None:
    sagemaker = server.client("sagemaker")
    sagemaker.create_model(
        ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": IMAGE, "Environment": {}}
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "m",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": INSTANCES,
    }
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])


def measure(sides: Sides, deployed: int, size: int, arguments: argparse.Namespace) -> Result:
    result = Result(size)
    values = result.values
    before = sides.counts("control")
    names = [f"e{number}" for number in range(deployed, size)]
    sagemaker = sides.server.client("sagemaker")
    for name in names:
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c")
    wait_until_routed(sides, size)
    time.sleep(SETTLE_SECONDS)
    grown = difference(sides.counts("control"), before)
    values["batch: control's ms for an endpoint"] = 1000 * grown["cpu_seconds"] / len(names)
    look_at_rest(sides, values, arguments.seconds)
    add_one_by_one(sides, values, size)
    ask(sides, values, size)
    if not arguments.nodes:
        invoke(sides, values, size)
    for role in ("control", "gateway", "agents"):
        values[f"{role}: MiB"] = sides.counts(role)["resident_bytes"] / 2**20
    values["route table: KiB"] = len(sides.table()) / 1024
    return result


def look_at_rest(sides: Sides, values: dict[str, float], seconds: float) -> None:
    before = {role: sides.counts(role) for role in sides.sockets}
    time.sleep(seconds)
    for role in sides.sockets:
        grown = difference(sides.counts(role), before[role])
        values[f"idle: {role}, % of a core"] = 100 * grown["cpu_seconds"] / seconds
        if role == "control":
            values["idle: statements a second"] = grown.get("statements", 0) / seconds
            values["idle: passes in 10 s"] = 10 * grown.get("pass_calls", 0) / seconds


def add_one_by_one(sides: Sides, values: dict[str, float], size: int) -> None:
    """Endpoints beside the others: each is created when the one before is in service."""
    sagemaker = sides.server.client("sagemaker")
    before = {role: sides.counts(role) for role in sides.sockets}
    seconds = []
    names = [f"added{number}" for number in range(ADDED)]
    for number, name in enumerate(names):
        began = time.perf_counter()
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c")
        wait_until_routed(sides, size + number + 1)
        until(lambda name=name: is_in_service(sagemaker, name), f"{name} is in service", 0.002)
        seconds.append(time.perf_counter() - began)
    grown = {role: difference(sides.counts(role), before[role]) for role in sides.sockets}
    control, gateway = grown["control"], grown["gateway"]
    quantiles = statistics.quantiles(seconds, n=10)
    values["create: ms to InService, p50"] = 1000 * statistics.median(seconds)
    values["create: ms to InService, p90"] = 1000 * quantiles[-1]
    values["create: control's ms"] = 1000 * control["cpu_seconds"] / ADDED
    values["create: statements"] = control["statements"] / ADDED
    values["create: passes"] = control["pass_calls"] / ADDED
    values["create: ms of a pass"] = 1000 * control["pass_seconds"] / control["pass_calls"]
    values["create: ms to publish routes"] = (
        1000 * control["publish_seconds"] / control["publish_calls"]
    )
    values["create: gateway's ms"] = 1000 * gateway["cpu_seconds"] / ADDED
    applied = max(1.0, gateway.get("apply_calls", 0))
    values["create: gateway's ms to apply a table"] = 1000 * gateway["apply_seconds"] / applied
    values["create: KiB to nodes"] = control.get("node_bytes", 0) / 1024 / ADDED
    values["create: KiB from nodes"] = control.get("node_answer_bytes", 0) / 1024 / ADDED
    values["create: ms of Fleet._settle"] = 1000 * control.get("settle_seconds", 0) / ADDED
    before_end = sides.counts("control")
    for name in names:
        sagemaker.delete_endpoint(EndpointName=name)
    until(lambda: not any(exists(sagemaker, name) for name in names), "they are gone", 0.2)
    gone = difference(sides.counts("control"), before_end)
    values["delete: control's ms"] = 1000 * gone["cpu_seconds"] / ADDED


def ask(sides: Sides, values: dict[str, float], size: int) -> None:
    """Describes and lists endpoints."""
    sagemaker = sides.server.client("sagemaker")
    calls: dict[str, Callable[[int], Any]] = {
        "DescribeEndpoint": lambda n: sagemaker.describe_endpoint(EndpointName=f"e{n % size}"),
        "ListEndpoints of 100": lambda n: sagemaker.list_endpoints(MaxResults=100),
    }
    for name, call in calls.items():
        call(0)
        before = sides.counts("control")
        milliseconds = []
        for number in range(CALLS):
            began = time.perf_counter()
            call(number * 7)
            milliseconds.append(1000 * (time.perf_counter() - began))
        grown = difference(sides.counts("control"), before)
        values[f"{name}: control's ms"] = 1000 * grown["cpu_seconds"] / CALLS
        values[f"{name}: ms, p50"] = statistics.median(milliseconds)


def invoke(sides: Sides, values: dict[str, float], size: int) -> None:
    """Calls the endpoints in turn."""
    requests = [sides.server.signed_request(f"e{number}", "1") for number in range(size)]
    load(sides.server.address, requests, CONNECTIONS, 60, max(400, size))
    before = sides.counts("gateway")
    tally, _ = load(sides.server.address, requests, CONNECTIONS, 60, INVOCATIONS)
    grown = difference(sides.counts("gateway"), before)
    assert not tally.failures, f"{tally.failures} invocations failed"
    values["InvokeEndpoint: gateway's µs"] = 1e6 * grown["cpu_seconds"] / INVOCATIONS


def is_in_service(sagemaker: Any, name: str) -> bool:
    return bool(sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "InService")


def exists(sagemaker: Any, name: str) -> bool:
    return bool(sagemaker.list_endpoints(NameContains=name)["Endpoints"])


def wait_until_routed(sides: Sides, endpoints: int) -> None:
    until(lambda: routed(sides) == endpoints, f"{endpoints} endpoints are routed", 0.005)


def routed(sides: Sides) -> int:
    try:
        table = msgspec.json.decode(sides.table(), type=RouteTable)
    except FileNotFoundError:
        return 0
    whole = (
        all(len(variant.instances) == INSTANCES for variant in route.variants)
        for route in table.routes.values()
    )
    return sum(whole)


def difference(after: Counts, before: Counts) -> Counts:
    return {name: value - before.get(name, 0) for name, value in after.items()}


# The report


def render(results: Sequence[Result], arguments: argparse.Namespace) -> str:
    names = list(dict.fromkeys(name for result in results for name in result.values))
    agents = f"{arguments.nodes} nodes over TLS" if arguments.nodes else "the agent of one machine"
    lines = [
        *heading("Control with many endpoints"),
        *describe_machine(load=False),
        f"- State in {'PostgreSQL' if arguments.postgres else 'SQLite'}; {agents}, simulated at "
        f"the HTTP interface; {INSTANCES} instances for an endpoint.",
        "- Times are processor time, unless they are said to be p50 or p90.",
        "",
        row_of(["", *(f"{result.endpoints} endpoints" for result in results)]),
        row_of(["---"] * (len(results) + 1)),
        *(row_of([name, *(cell(result.values.get(name)) for result in results)]) for name in names),
    ]
    return "\n".join([*lines, ""])


def cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
