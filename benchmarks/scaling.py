"""Autoscaling: a step of load on a real endpoint, and a day of load in simulation.

    python3 benchmarks/scaling.py [--seconds 480] [--parts step,day] [--save]

The step: an endpoint with one XGBoost model and target tracking on
SageMakerVariantInvocationsPerInstance is asked 10 times a second, then 400 times. Every answer is
compared. The periods of the alarms are SageMaker's, so this takes the minutes that it takes there.

The day: the load of 1,440 minutes goes through the same policy by the functions that decide in the
server (`sagehen scaling simulate` uses them, too); then each request waits in one queue for that
many instances, which work on one request at a time. Beside it a fleet of a fixed size.
"""

import argparse
import heapq
import json
import math
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from frame import heading, keep, options, some
from house import make_model
from machine import describe_machine
from sides import ROLE, Server, Side, deploy, server
from soak import Offers

from sagehen.app.commands.scaling import read_policy
from sagehen.services.autoscaling.simulation import Simulation, simulate

PARTS = ["step", "day"]
CALM_RATE, STEP_RATE = 10.0, 400.0
"""requests a second"""
CALM_SECONDS = 60.0
CONNECTIONS = 64
TARGET_PER_MINUTE = 2400.0
"""of each instance: 40 requests a second"""
MOST_INSTANCES = 20
LOOK_SECONDS = 0.5
RESOURCE = "endpoint/house/variant/AllTraffic"
DIMENSION = "sagemaker:variant:DesiredInstanceCount"
POLICY = {
    "PolicyName": "by-invocations",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": TARGET_PER_MINUTE,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
        },
    },
}

SERVICE_SECONDS, SIGMA = 0.012, 0.5
"""median and sigma of a log-normal: 13.6 ms on average; so the target is 54 % of an instance"""
START_SECONDS = 30.0
DAY_PEAK = 400.0
"""requests a second"""


def main() -> None:
    arguments = parse_arguments()
    report = [*heading("Autoscaling"), *describe_machine(("sagehen", "xgboost-cpu")), ""]
    if "step" in arguments.parts:
        report += step_report(measure_step(arguments.seconds), arguments.seconds)
    if "day" in arguments.parts:
        report += day_report()
    print("\n".join(report))
    if arguments.save:
        keep("\n".join(report) + "\n", "scaling")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=480)
    parser.add_argument("--parts", type=some(PARTS), default=PARTS, help=f"some of {PARTS}")
    return parser.parse_args()


# The step


class Count(NamedTuple):
    """An answer of DescribeEndpoint, with the seconds since the step."""

    seconds: float
    current: int
    desired: int


@dataclass
class Step:
    """The measured requests before and after the step, and how the endpoint followed."""

    calm: dict[str, Any]
    loaded: dict[str, Any]
    counts: list[Count] = field(default_factory=list)
    activities: list[dict[str, Any]] = field(default_factory=list)


def measure_step(seconds: float) -> Step:
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        question = make_model(Path(folder))
        with server(Path(folder)) as running:
            deploy(question.model, running, routing="LEAST_OUTSTANDING_REQUESTS")
            scale(running)
            host, port = running.address
            side = Side("Sagehen", host, port, partial(running.signed_request, "house"))
            offers = Offers(side, answers_of(running, side, question.rows), Path(folder))
            calm = offers.result_of(offers.start(CONNECTIONS, CALM_RATE, CALM_SECONDS))
            return under_load(running, offers, calm, seconds)


def answers_of(running: Server, side: Side, rows: Sequence[str]) -> dict[str, str]:
    runtime = running.client("sagemaker-runtime")
    bodies = (
        runtime.invoke_endpoint(EndpointName="house", ContentType="text/csv", Body=row)["Body"]
        for row in rows
    )
    return {row: body.read().decode() for row, body in zip(rows, bodies, strict=True)}


def scale(running: Server) -> None:
    autoscaling = running.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": RESOURCE,
        "ScalableDimension": DIMENSION,
    }
    autoscaling.register_scalable_target(
        **target, MinCapacity=1, MaxCapacity=MOST_INSTANCES, RoleARN=ROLE
    )
    autoscaling.put_scaling_policy(**target, **POLICY)


def under_load(running: Server, offers: Offers, calm: dict[str, Any], seconds: float) -> Step:
    step = Step(calm, {})
    ended = threading.Event()
    generator = offers.start(CONNECTIONS, STEP_RATE, seconds)
    watcher = threading.Thread(target=watch, args=(running, offers, step, ended))
    watcher.start()
    try:
        step.loaded = offers.result_of(generator)
    finally:
        ended.set()
        watcher.join()
        generator.kill()
    autoscaling = running.client("application-autoscaling")
    activities = autoscaling.describe_scaling_activities(ServiceNamespace="sagemaker")
    step.activities = activities["ScalingActivities"]
    return step


def watch(running: Server, offers: Offers, step: Step, ended: threading.Event) -> None:
    sagemaker = running.client("sagemaker")
    start = signed_at = time.monotonic()
    while not ended.wait(LOOK_SECONDS):
        (variant,) = sagemaker.describe_endpoint(EndpointName="house")["ProductionVariants"]
        now = time.monotonic()
        current, desired = variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]
        step.counts.append(Count(now - start, current, desired))
        if now - signed_at > 60:  # a signature grows old
            signed_at = now
            offers.sign()


def step_report(step: Step, seconds: float) -> list[str]:
    ideal = math.ceil(STEP_RATE * 60 / TARGET_PER_MINUTE)
    asked = [count.seconds for count in step.counts if count.desired >= ideal]
    reached = [count.seconds for count in step.counts if count.current >= ideal]
    most = max(count.desired for count in step.counts)
    rows = [
        ("from", "to", "failures", "p50 ms", "p99 ms", "longest ms"),
        ("---",) * 6,
        (f"{CALM_RATE:.0f}/s", f"{CALM_SECONDS:.0f} s", *latencies(step.calm)),
        (f"{STEP_RATE:.0f}/s", f"{seconds:.0f} s", *latencies(step.loaded)),
    ]
    return [
        f"## From {CALM_RATE:.0f} to {STEP_RATE:.0f} requests a second",
        "",
        f"- Target tracking at {TARGET_PER_MINUTE:.0f} invocations a minute and instance: "
        f"{ideal} instances are right.",
        f"- Asked for after {asked[0]:.0f} s, serving after {reached[0]:.0f} s."
        if asked and reached
        else "- NOT reached.",
        f"- The most that were asked for: {most} ({most - ideal:+d}).",
        *(f"- Activity: {one['Description']} {one['Cause']}." for one in step.activities),
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def latencies(result: dict[str, Any]) -> tuple[str, ...]:
    keys = ("p50_ms", "p99_ms", "longest_ms")
    return (f"{result['failed']}", *(f"{result[key]:.1f}" for key in keys))


# The day


class Fleet(NamedTuple):
    """How a fleet fared."""

    name: str
    hours: float
    changes: int
    p50: float
    p99: float
    longest: float


def day_of_load() -> list[float]:
    """Returns requests a second, by the minute: few at night, two humps, noise, and one burst."""
    generator = random.Random(2026)
    loads = []
    for minute in range(1440):
        hour = minute / 60
        humps = math.exp(-(((hour - 11) / 2.5) ** 2)) + 0.8 * math.exp(-(((hour - 20) / 2) ** 2))
        burst = 0.35 if 15.5 <= hour < 15.75 else 0.0
        share = 0.05 + 0.9 * min(humps, 1.0) + burst
        loads.append(DAY_PEAK * share * generator.uniform(0.9, 1.1))
    return loads


def day_report() -> list[str]:
    loads = day_of_load()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.json"
        file.write_text(json.dumps(POLICY))
        policy = read_policy(file)
    simulated = Simulation(
        policies=(policy,),
        loads=tuple(load * 60 for load in loads),
        minimum=1,
        maximum=MOST_INSTANCES,
        initial=1,
        start_seconds=START_SECONDS,
    )
    result = simulate(simulated)
    changes = [(moment.seconds, moment.running) for moment in result.minutes]
    peak = math.ceil(max(loads) * 60 / TARGET_PER_MINUTE)
    mean = math.ceil(sum(loads) / len(loads) * 60 / TARGET_PER_MINUTE)
    fleets = [
        Fleet(
            "by the policy",
            result.instance_seconds / 3600,
            result.changes,
            *waits(loads, changes),
        ),
        *(
            Fleet(name, 24.0 * count, 0, *waits(loads, [(0, count)]))
            for name, count in (
                (f"fixed, {peak}: the peak", peak),
                (f"fixed, {mean}: the mean", mean),
            )
        ),
    ]
    rows = [
        ("fleet", "instance hours", "changes", "p50 ms", "p99 ms", "longest ms"),
        ("---",) * 6,
        *(
            (
                fleet.name,
                f"{fleet.hours:.0f}",
                str(fleet.changes),
                f"{fleet.p50:.1f}",
                f"{fleet.p99:.1f}",
                f"{fleet.longest:,.0f}",
            )
            for fleet in fleets
        ),
    ]
    saved = 1 - fleets[0].hours / fleets[1].hours
    return [
        "## A day of load, simulated",
        "",
        f"- {sum(loads) * 60:,.0f} requests, {min(loads):.0f} to {max(loads):.0f} a second; "
        f"service times log-normal, median {SERVICE_SECONDS * 1000:.0f} ms; a new one serves after "
        f"{START_SECONDS:.0f} s.",
        f"- {saved:.0%} fewer instance hours than a fleet for the peak.",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def waits(
    loads: Sequence[float], counts: Sequence[tuple[float, int]]
) -> tuple[float, float, float]:
    """Returns p50, p99 and the longest time of a request in milliseconds.

    `counts`: from so many seconds on, so many instances serve.
    """
    generator = random.Random(7)
    free = [0.0] * counts[0][1]
    heapq.heapify(free)
    later = iter(counts[1:])
    change = next(later, None)
    taken = []
    for arrival in arrivals(loads, generator):
        while change is not None and change[0] <= arrival:
            resize(free, change)
            change = next(later, None)
        start = max(arrival, free[0])
        end = start + generator.lognormvariate(math.log(SERVICE_SECONDS), SIGMA)
        heapq.heapreplace(free, end)
        taken.append(end - arrival)
    taken.sort()
    return tuple(taken[int(share * (len(taken) - 1))] * 1000 for share in (0.5, 0.99, 1))  # type: ignore[return-value]


def arrivals(loads: Sequence[float], generator: random.Random) -> Iterator[float]:
    for minute, load in enumerate(loads):
        at = minute * 60.0
        while (at := at + generator.expovariate(load)) < (minute + 1) * 60:
            yield at


def resize(free: list[float], change: tuple[float, int]) -> None:
    """An instance that goes has nothing to do, or ends what it has: the first to be free go."""
    at, count = change
    while len(free) > count:
        heapq.heappop(free)
    while len(free) < count:
        heapq.heappush(free, at)


if __name__ == "__main__":
    main()
