"""Whether a thousand models on one endpoint cost more a call than one: the same client, in turns.

    python3 benchmarks/many_against_one.py [--models 1000] [--trees 50] [--seconds 5]
                                           [--repeats 5] [--connections 1,8,64]
                                           [--before ENV] [--save]

One server has three endpoints: a single-model endpoint, one like it that predicts every row by
itself (SAGEMAKER_TS_BATCH_SIZE 1), and a multi-model endpoint. The last is called for one of its
models only, and for all of them at random. All models are of one size. Besides requests a second,
each measurement gives the processor time that the gateways and the instance took for a request,
which says more on a machine that others use too. With `--before`, an environment that has another
version, its server runs beside this one's and takes turns with it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import many_models
import multi_servers
import sides
from frame import (
    WARM_UP_SHARE,
    Measured,
    heading,
    keep,
    middle,
    numbers,
    options,
    put_under_load,
    row_of,
)
from house import ask
from inside import Inside
from machine import describe_machine
from many_models import Catalog, make_catalog, uniform
from other_load import OtherLoad, foreign_seconds
from peer_results import verdict
from sides import Failed, Server, Side, server

QUESTIONS = 4000
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_SHARE = 0.9
"""share of one model's throughput that many models are to reach"""
SINGLE, ALONE, ONE, MANY = (
    "single-model endpoint",
    "single-model endpoint, a row a call",
    "multi-model endpoint, one model",
    "multi-model endpoint, all models",
)
Key = tuple[str, str, int]
"""A server, a workload and a number of connections."""
Results = dict[Key, list[Measured]]


@dataclass(frozen=True)
class Target:
    """A workload: its requests go to one endpoint."""

    tree: str
    title: str
    side: Side
    questions: Sequence[str]
    gateways: Sequence[int]
    instance: int
    """Process ids."""


def main() -> None:
    arguments = parse_arguments()
    many_models.TREES = (arguments.trees,)
    catalog = make_catalog(arguments.models)
    other_load = OtherLoad(ignored=arguments.at_once)
    versions = [("now", sides.TOOLS)]
    if arguments.before is not None:
        versions.insert(0, ("before", arguments.before / "bin"))
    with ExitStack() as stack:
        targets = [
            target
            for name, tools in versions
            for target in stack.enter_context(started(name, tools, catalog, arguments.models))
        ]
        results = measure_all(targets, arguments, other_load)
    report = render(results, arguments, other_load)
    print(report)
    if arguments.save:
        keep(report, "many-against-one")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=5)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=50, help="of each model")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--connections", type=numbers, default=[1, 8, 64])
    parser.add_argument("--before", type=Path, help="an environment with another version")
    return parser.parse_args()


@contextmanager
def started(name: str, tools: Path, catalog: Catalog, models: int) -> Iterator[list[Target]]:
    """A server with the endpoints, and every model loaded."""
    with (
        tempfile.TemporaryDirectory(prefix="sgh-") as folder,
        server(Path(folder), tools) as running,
    ):
        model = Path(folder) / "model.ubj"
        model.write_bytes(catalog.model(0))
        sides.deploy(model, running, name="single")
        alone = {"SAGEMAKER_TS_BATCH_SIZE": "1"}
        sides.deploy(model, running, name="alone", environment=alone)
        multi_servers.upload(catalog, models, running)
        host = multi_servers.deploy(running, models)
        for number in range(models):
            check(host.side, catalog, number)
        yield list(targets_of(name, running, host.side, catalog, models))


def check(side: Side, catalog: Catalog, number: int) -> None:
    answer = ask(side, catalog.question(number))
    if answer != float(catalog.expects(number)):
        raise Failed(f"Model {number} answers {answer}, not {catalog.expects(number)}.")


def targets_of(
    tree: str, running: Server, multi: Side, catalog: Catalog, models: int
) -> Iterator[Target]:
    inside = Inside(running)
    gateways = list(inside.gateways().values())
    pids = inside.instances()

    def instance_of(endpoint: str) -> int:
        (instance,) = (candidate for candidate in inside.endpoint_instances(endpoint))
        return pids[instance]

    def single(endpoint: str, question: str) -> bytes:
        return running.signed_request(endpoint, question.split()[1], Accept="text/csv")

    draws = uniform(models, QUESTIONS)
    # As many requests as of all models: what the client and the gateway go through is the same.
    requests_to_first = [f"0 {catalog.rows[at % len(catalog.rows)]}" for at in range(QUESTIONS)]
    for title, endpoint in ((SINGLE, "single"), (ALONE, "alone")):
        side = Side(title, *running.address, partial(single, endpoint))
        yield Target(tree, title, side, requests_to_first, gateways, instance_of(endpoint))
    instance = instance_of(multi_servers.endpoint_name(models))
    yield Target(tree, ONE, multi, requests_to_first, gateways, instance)
    yield Target(tree, MANY, multi, [catalog.question(at) for at in draws], gateways, instance)


def measure_all(
    targets: Sequence[Target], arguments: argparse.Namespace, other_load: OtherLoad
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(arguments.repeats):
        for connections in arguments.connections:
            for target in targets:
                result = measure_target(target, connections, arguments.seconds, other_load)
                results[target.tree, target.title, connections].append(result)
                print(
                    f"{repeat + 1}/{arguments.repeats}  {connections:2} connections  "
                    f"{target.tree:6} {target.title:36} {result['requests_per_second']:8.0f}/s  "
                    f"gateway {result['gateway_us']:4.0f} us  "
                    f"instance {result['instance_us']:4.0f} us",
                    file=sys.stderr,
                )
    return results


def measure_target(
    target: Target, connections: int, seconds: float, other_load: OtherLoad
) -> Measured:
    """One measurement in calm, warmed up, with the processor time that each request took."""
    put_under_load(target.side, target.questions, connections, WARM_UP_SHARE * seconds)
    return other_load.undisturbed(partial(counted, target, connections, seconds))


def counted(target: Target, connections: int, seconds: float) -> Measured:
    foreign_before, began = foreign_seconds(), time.perf_counter()
    before = cpu_seconds(target.gateways), cpu_seconds([target.instance])
    result = put_under_load(target.side, target.questions, connections, seconds)
    after = cpu_seconds(target.gateways), cpu_seconds([target.instance])
    gateway, instance = (
        (now - then) / result["answers"] * 1e6 for now, then in zip(after, before, strict=True)
    )
    others_cores = (foreign_seconds() - foreign_before) / (time.perf_counter() - began)
    return {
        **result,
        "gateway_us": gateway,
        "instance_us": instance,
        "others_cores": max(0.0, others_cores),
    }


def cpu_seconds(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def render(results: Results, arguments: argparse.Namespace, other_load: OtherLoad) -> str:
    lines = [
        *heading("Many models against one"),
        *describe_machine(),
        other_load.describe(),
        beside(results),
        f"- {arguments.models:,} XGBoost models of {arguments.trees} trees; medians of "
        f"{arguments.repeats} turns of {arguments.seconds:g} s each. CPU is of a request.",
    ]
    for connections in arguments.connections:
        lines += table(results, connections)
    return "\n".join([*lines, "", "## Targets", "", *targets_met(results, arguments), ""])


def beside(results: Results) -> str:
    used = sorted(result["others_cores"] for measured in results.values() for result in measured)
    return (
        f"- Other processes used {used[len(used) // 2]:.2f} cores in the middle measurement, "
        f"{used[-1]:.2f} at most: compare processor times, and shares of the same turn."
    )


def table(results: Results, connections: int) -> list[str]:
    lines = [
        "",
        f"## {connections} connection{'s' if connections > 1 else ''}",
        "",
        "| side | what is called | req/s | of one model's | p50 ms | p90 | p99 | gateway µs | "
        "instance µs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (tree, title, number), measured in results.items():
        if number == connections:
            share = share_of_one(results, tree, title, connections)
            keys = ("p50_ms", "p90_ms", "p99_ms")
            lines.append(
                row_of(
                    [
                        tree,
                        title,
                        f"{middle(measured, 'requests_per_second'):,.0f}",
                        f"{share:.2f}",
                        *(f"{middle(measured, key):.2f}" for key in keys),
                        f"{middle(measured, 'gateway_us'):.0f}",
                        f"{middle(measured, 'instance_us'):.0f}",
                    ]
                )
            )
    return lines


def share_of_one(results: Results, tree: str, title: str, connections: int) -> float:
    """The median, over the turns, of its throughput to that of one model in the same turn."""
    ones = results[tree, ONE, connections]
    mine = results[tree, title, connections]
    return statistics.median(
        own["requests_per_second"] / one["requests_per_second"]
        for own, one in zip(mine, ones, strict=True)
    )


def targets_met(results: Results, arguments: argparse.Namespace) -> list[str]:
    return [
        verdict(
            (share := share_of_one(results, "now", MANY, connections)) >= LEAST_SHARE,
            f"{arguments.models:,} models have at least {LEAST_SHARE:.0%} of one model's "
            f"throughput at {connections} connections: {share:.0%}",
        )
        for connections in arguments.connections
    ]


if __name__ == "__main__":
    main()
