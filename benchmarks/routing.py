"""Which instance gets a request: the routing strategies next to one ideal queue, in one run.

    python3 benchmarks/routing.py [--seconds 10] [--quick] [--save]

1, 5, 10, 15 and 20 instances, each a real model server that works on one request at a time, with
four users an instance, each of whom asks again when the answer is there. How long a request takes
is drawn from a log-normal, with a fixed seed, and travels in the request: the script sleeps as
long. So every strategy, and the simulated queue, works on the same requests, and twenty instances
need no twenty cores. The ideal queue is one for all instances, without any cost of its own.
"""

import argparse
import io
import math
import random
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import cycle
from pathlib import Path
from typing import Any

from frame import Measured, heading, measure, options, row_of
from load import Tally, summary
from machine import describe_machine
from other_load import OtherLoad
from sides import HERE, ROLE, Server, Side, server

INSTANCES = (1, 5, 10, 15, 20)
QUICK_INSTANCES = (1, 2)
USERS_PER_INSTANCE = 4
SEED = 2026
MEDIAN_SECONDS = 0.020
"""Long beside what the machine spends on a request, so that it is routing that is measured."""
SIGMA = 1.0
DRAWS, QUICK_DRAWS = 4000, 100
"""Requests that are signed beforehand; they are sent in turn."""
IN_SERVICE_SECONDS = 120
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagehen-python:1"
PLACE = HERE.parent / "docs" / "benchmarks"
IDEAL = "one ideal queue (simulated)"

SCRIPT = """
import time

def model_fn(model_dir):
    return "sleeps"

def input_fn(body, content_type):
    return float(body)

def predict_fn(seconds, model):
    time.sleep(seconds)
    return seconds

def output_fn(seconds, accept):
    return str(seconds)
"""


@dataclass(frozen=True)
class Strategy:
    """How an endpoint routes: by its config, and by what its containers' environment says."""

    name: str
    endpoint: str
    routing: str
    environment: Mapping[str, str] = field(default_factory=dict)


AS_SAGEMAKER = {"SAGEHEN_SLOTS": "100000"}
"""So many that nothing waits in the gateway: requests queue before their container."""

STRATEGIES = (
    Strategy("RANDOM", "random", "RANDOM", AS_SAGEMAKER),
    Strategy("LEAST_OUTSTANDING_REQUESTS", "least", "LEAST_OUTSTANDING_REQUESTS", AS_SAGEMAKER),
    Strategy("late binding", "late", "LEAST_OUTSTANDING_REQUESTS", {"SAGEHEN_SLOTS": "1"}),
)

Results = dict[tuple[str, int], Measured]
"""By strategy and instances."""


def main() -> None:
    arguments = parse_arguments()
    counts = QUICK_INSTANCES if arguments.quick else INSTANCES
    draws = draw_seconds(QUICK_DRAWS if arguments.quick else DRAWS)
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, server(Path(folder)) as running:
        upload(running)
        results = measure_all(running, counts, draws, arguments.seconds, other_load)
    for count in counts:
        results[IDEAL, count] = simulate(count, draws, arguments.seconds)
    report = render(results, counts, other_load)
    print(report)
    if arguments.save:
        save(report, results, counts, arguments.into)


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=10)
    parser.add_argument("--quick", action="store_true", help="few instances: to try it out")
    parser.add_argument("--into", type=Path, default=PLACE, help="the folder to keep them in")
    return parser.parse_args()


def draw_seconds(count: int) -> list[float]:
    """How long each request takes, in the order of sending."""
    generator = random.Random(SEED)
    return [
        round(generator.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA), 6) for _ in range(count)
    ]


# The endpoints


def upload(running: Server) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(SCRIPT.encode())
        archive.addfile(member, io.BytesIO(SCRIPT.encode()))
    s3 = running.client("s3")
    s3.create_bucket(Bucket="benchmark")
    s3.put_object(Bucket="benchmark", Key="sleeps.tar.gz", Body=packed.getvalue())


def deploy(running: Server, strategy: Strategy) -> None:
    """An endpoint of one instance; it is waited for where its size is set."""
    sagemaker = running.client("sagemaker")
    sagemaker.create_model(
        ModelName=strategy.endpoint,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": "s3://benchmark/sleeps.tar.gz",
            # One worker: an instance is a server that works on one request at a time.
            "Environment": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1", **strategy.environment},
        },
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": strategy.endpoint,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        "RoutingConfig": {"RoutingStrategy": strategy.routing},
    }
    names = {"EndpointConfigName": strategy.endpoint}
    sagemaker.create_endpoint_config(**names, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=strategy.endpoint, **names)


def resize(running: Server, strategy: Strategy, count: int) -> None:
    """Return when the endpoint has `count` instances in service."""
    sagemaker = running.client("sagemaker")
    wait_until_in_service(sagemaker, strategy)
    if count > 1:
        sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=strategy.endpoint,
            DesiredWeightsAndCapacities=[
                {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
            ],
        )
        wait_until_in_service(sagemaker, strategy)


def wait_until_in_service(sagemaker: Any, strategy: Strategy) -> None:
    deadline = time.monotonic() + IN_SERVICE_SECONDS
    while time.monotonic() < deadline:
        described = sagemaker.describe_endpoint(EndpointName=strategy.endpoint)
        if described["EndpointStatus"] == "InService":
            return
        if described["EndpointStatus"] == "Failed":
            break
        time.sleep(0.2)
    raise SystemExit(f"{strategy.endpoint} is not in service: {described!r}")


# The measurements


def measure_all(
    running: Server,
    counts: Sequence[int],
    draws: Sequence[float],
    seconds: float,
    other_load: OtherLoad,
) -> Results:
    rows = list(map(str, draws))
    results: Results = {}
    for strategy in STRATEGIES:
        deploy(running, strategy)
    for count in counts:
        for strategy in STRATEGIES:
            resize(running, strategy, count)
        for strategy in STRATEGIES:
            signed = partial(running.signed_request, strategy.endpoint)
            side = Side(strategy.name, *running.address, signed)
            result = measure(side, rows, count * USERS_PER_INSTANCE, seconds, other_load)
            results[strategy.name, count] = result
            print(
                f"{count:2} instances  {strategy.name:28} p50 {result['p50_ms']:6.1f} ms  "
                f"p99 {result['p99_ms']:6.1f} ms  {result['requests_per_second']:5.0f}/s",
                file=sys.stderr,
            )
    return results


def simulate(count: int, draws: Sequence[float], seconds: float) -> dict[str, float]:
    """The same users before one queue, first come, first served by whichever instance is free."""
    supply = cycle(draws)
    asking = [0.0] * (count * USERS_PER_INSTANCE)
    free = [0.0] * count
    tally = Tally()
    while asking:
        asked_at = heappop(asking)
        answered_at = max(asked_at, heappop(free)) + next(supply)
        heappush(free, answered_at)
        # As in the load generator, what is under way at the end does not count.
        if answered_at <= seconds:
            tally.milliseconds.append((answered_at - asked_at) * 1000)
            heappush(asking, answered_at)
    return summary(tally, seconds)


# What is shown


def render(results: Results, counts: Sequence[int], other_load: OtherLoad) -> str:
    """The results as Markdown tables, one for each number of instances."""
    lines = [*heading("Routing"), *describe_machine(), other_load.describe()]
    lines += [
        f"- Service times: log-normal, median {MEDIAN_SECONDS * 1000:g} ms, sigma {SIGMA:g}, "
        f"seed {SEED}; {USERS_PER_INSTANCE} users an instance",
        "",
    ]
    for count in counts:
        lines += [
            f"## {count} instance{'s' if count > 1 else ''}",
            "",
            "| routing | requests/s | p50 ms | p99 ms | p99 beside the ideal |",
            "|---|---|---|---|---|",
        ]
        ideal = results[IDEAL, count]["p99_ms"]
        for name in names_of(results):
            one = results[name, count]
            cells = [f"{one['requests_per_second']:.0f}", f"{one['p50_ms']:.1f}"]
            cells += [f"{one['p99_ms']:.1f}", f"{one['p99_ms'] / ideal - 1:+.0%}"]
            lines.append(row_of([name, *cells]))
        lines.append("")
    return "\n".join(lines)


def names_of(results: Results) -> list[str]:
    return list(dict.fromkeys(name for name, _ in results))


def save(report: str, results: Results, counts: Sequence[int], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plot(results, counts, folder / "routing.png")
    picture = "![p50 and p99 by the number of instances](routing.png)\n"
    (folder / "routing.md").write_text(f"{report}\n{picture}")


def plot(results: Results, counts: Sequence[int], path: Path) -> None:
    # Only here: drawing is for who develops, and takes a while to import.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharex=True)
    for axis, key, title in zip(axes, ("p50_ms", "p99_ms"), ("p50", "p99"), strict=True):
        for name in names_of(results):
            style = "k--" if name == IDEAL else "o-"
            axis.plot(counts, [results[name, count][key] for count in counts], style, label=name)
        axis.set(title=title, xlabel="instances, with 4 users each", ylabel="milliseconds")
        axis.set_xticks(list(counts))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
