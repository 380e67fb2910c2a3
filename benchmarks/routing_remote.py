"""Late binding across machines: clusters of 10, 100 and 1,000 instances with 1 to 50 gateways, in
simulated time, next to one ideal queue for all instances.

    python3 benchmarks/routing_remote.py [--requests 50000] [--quick] [--save]

The gateways and nodes decide by the gateway's own code; see remote_simulation.py. p99 is to be
within 10 % of the ideal queue's, which neither networks nor what others do not know delay, and the
messages of a request are to stay as many however large the cluster is.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from frame import heading, row_of
from machine import describe_machine
from remote_simulation import Case, Simulation, ideal
from sides import HERE

PLACE = HERE.parent / "docs" / "benchmarks"
CLUSTERS = ((10, 5), (100, 20), (1000, 50))
"""instances and nodes"""
GATEWAYS = (1, 4, 16, 50)
LOADS = (0.7, 0.85, 0.95)
DELAYS = (0.0001, 0.0005)
HEAD = (
    "instances",
    "nodes",
    "gateways",
    "load",
    "delay ms",
    "p50 ms",
    "ideal",
    "p99 ms",
    "ideal",
    "p99 beside the ideal",
    "messages a request",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000, help="of each case")
    parser.add_argument("--quick", action="store_true", help="few cases: to try it out")
    parser.add_argument("--save", action="store_true", help="into docs/benchmarks")
    parser.add_argument("--into", type=Path, default=PLACE, help="the folder to keep them in")
    arguments = parser.parse_args()
    lines = [*heading("Routing across machines"), *describe_machine(), *described(arguments), ""]
    lines += [row_of(HEAD), "|---" * len(HEAD) + "|"]
    for case in cases(arguments.requests, arguments.quick):
        lines.append(measured(case))
        print(lines[-1], file=sys.stderr, flush=True)
    report = "\n".join(lines)
    print(report)
    if arguments.save:
        arguments.into.mkdir(parents=True, exist_ok=True)
        (arguments.into / "routing_remote.md").write_text(f"{report}\n")


def described(arguments: argparse.Namespace) -> Iterator[str]:
    case = Case(instances=1, nodes=1, gateways=1, load=0.5)
    yield (
        f"- {arguments.requests} requests a case at random times (Poisson), in simulated time: the "
        "machine's speed does not matter"
    )
    yield (
        f"- Service times: log-normal, median {case.median_seconds * 1000:g} ms, sigma "
        f"{case.sigma:g}, seed {case.seed}; an instance works on one request at a time"
    )
    yield "- Delay: of each message between two nodes, one way; none within a node"


def cases(requests: int, is_quick: bool) -> Iterator[Case]:
    base = Case(instances=10, nodes=5, gateways=4, load=0.95, requests=requests)
    if is_quick:
        yield base
        yield replace(base, instances=100, nodes=20, requests=min(requests, 20_000))
        return
    for delay in DELAYS:
        for instances, nodes in CLUSTERS:
            for load in LOADS:
                for gateways in GATEWAYS:
                    yield replace(
                        base,
                        instances=instances,
                        nodes=nodes,
                        gateways=gateways,
                        load=load,
                        delay_seconds=delay,
                    )


def measured(case: Case) -> str:
    outcome, best = Simulation(case).run(), ideal(case)
    p50, p99 = outcome.quantile(0.5), outcome.quantile(0.99)
    cells = [
        str(case.instances),
        str(case.nodes),
        str(case.gateways),
        f"{case.load:.2f}",
        f"{case.delay_seconds * 1000:g}",
        f"{p50 * 1000:.1f}",
        f"{best.quantile(0.5) * 1000:.1f}",
        f"{p99 * 1000:.1f}",
        f"{best.quantile(0.99) * 1000:.1f}",
        f"{p99 / best.quantile(0.99) - 1:+.1%}",
        f"{outcome.messages / case.requests:.1f}",
    ]
    return row_of(cells)


if __name__ == "__main__":
    main()
