"""The processor time that alarms and scalable targets take in the control process.

    python3 benchmarks/scaling_costs.py [--seconds 240] [--alarms 500] [--targets 200] [--save]

One server has an endpoint's variant with an instance for each target. Its control process is
measured without alarms, then with alarms over the variants' invocations, then with a target
tracking policy for each variant too, each of which has two alarms. Nobody calls the variants, so
that the lower alarm of each is in ALARM and calls its policy every minute.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from frame import heading, keep, options, row_of
from idle import Usage, usage_of
from inside import Inside
from machine import describe_machine
from other_load import foreign_seconds
from peer_results import verdict
from sides import ROLE, Failed, Server, server

CONTAINER = Path(__file__).with_name("echo_container.py")
VARIANTS_PER_ENDPOINT = 10
SETTLE_SECONDS = 150.0
"""after a change, until every alarm has been evaluated in its last state"""
MOST_PERCENT = 2.0
TARGET_PER_MINUTE = 100.0
DIMENSION = "sagemaker:variant:DesiredInstanceCount"


class Span(NamedTuple):
    """The processor time and memory of the control process over some time."""

    name: str
    alarms: int
    in_alarm: int
    targets: int
    cpu_percent: float
    written_bytes: float
    """a second"""
    pss_mib: float
    others_cores: float


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, serving(Path(folder)) as running:
        variants = deploy(running, arguments.targets)
        spans = list(measure_all(running, variants, arguments))
    report = render(spans, arguments.seconds)
    print(report)
    if arguments.save:
        keep(report, "scaling-costs")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=240)
    parser.add_argument("--alarms", type=int, default=500)
    parser.add_argument("--targets", type=int, default=200)
    return parser.parse_args()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    images = json.dumps({"echo": [sys.executable, str(CONTAINER)]})
    settings = {
        "SAGEHEN_IMAGES": images,
        "SAGEHEN_CONTAINER_NETWORK": "machine",
        "SAGEHEN_MAX_ENDPOINT_INSTANCES": "1000",
        # So that the lower alarms come to their state within minutes.
        "SAGEHEN_TARGET_TRACKING_SCALE_IN_SECONDS": "60",
    }
    with server(folder, **settings) as running:
        yield running


def deploy(running: Server, count: int) -> list[tuple[str, str]]:
    """Returns the endpoint and the name of each of so many variants in service."""
    sagemaker = running.client("sagemaker")
    sagemaker.create_model(
        ModelName="echo", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo"}
    )
    variants = [
        (f"echo-{number // VARIANTS_PER_ENDPOINT}", f"v{number % VARIANTS_PER_ENDPOINT}")
        for number in range(count)
    ]
    for endpoint in dict.fromkeys(name for name, _ in variants):
        own = [
            {
                "VariantName": variant,
                "ModelName": "echo",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
            for name, variant in variants
            if name == endpoint
        ]
        sagemaker.create_endpoint_config(EndpointConfigName=endpoint, ProductionVariants=own)
        sagemaker.create_endpoint(EndpointName=endpoint, EndpointConfigName=endpoint)
        waiter = sagemaker.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=endpoint, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    return variants


def measure_all(
    running: Server, variants: Sequence[tuple[str, str]], arguments: argparse.Namespace
) -> Iterator[Span]:
    seconds = arguments.seconds
    yield measure("none", running, seconds)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: put_alarm(running, n, variants), range(arguments.alarms)))
    yield measure(f"{arguments.alarms} alarms", running, seconds)
    for variant in variants:
        track(running, *variant)
    yield measure(f"and {len(variants)} targets", running, seconds)


def put_alarm(running: Server, number: int, variants: Sequence[tuple[str, str]]) -> None:
    endpoint, variant = variants[number % len(variants)]
    running.client("cloudwatch").put_metric_alarm(
        AlarmName=f"alarm-{number}",
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant},
        ],
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1 + number % 5,
        Threshold=100,
        ComparisonOperator="GreaterThanThreshold",
    )


def track(running: Server, endpoint: str, variant: str) -> None:
    autoscaling = running.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{endpoint}/variant/{variant}",
        "ScalableDimension": DIMENSION,
    }
    autoscaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=4)
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    autoscaling.put_scaling_policy(
        **target,
        PolicyName="tracked",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": TARGET_PER_MINUTE,
            "PredefinedMetricSpecification": metric,
        },
    )


def measure(name: str, running: Server, seconds: float) -> Span:
    time.sleep(SETTLE_SECONDS)
    pid = Inside(running).roles()["control"]
    foreign, began, before = foreign_seconds(), time.monotonic(), usage_of(pid)
    time.sleep(seconds)
    took, after = time.monotonic() - began, usage_of(pid)
    others = (foreign_seconds() - foreign) / took
    span = describe(name, running, before, after, took, others)
    print(span, file=sys.stderr)
    return span


def describe(
    name: str, running: Server, before: Usage, after: Usage, took: float, others: float
) -> Span:
    alarms = all_alarms(running)
    autoscaling = running.client("application-autoscaling")
    pages = autoscaling.get_paginator("describe_scalable_targets")
    targets = sum(
        len(page["ScalableTargets"]) for page in pages.paginate(ServiceNamespace="sagemaker")
    )
    unknown = [alarm for alarm in alarms if alarm["StateValue"] == "INSUFFICIENT_DATA"]
    if unknown:
        raise Failed(f"{len(unknown)} alarms have no data, such as {unknown[0]['AlarmName']}.")
    return Span(
        name=name,
        alarms=len(alarms),
        in_alarm=sum(alarm["StateValue"] == "ALARM" for alarm in alarms),
        targets=targets,
        cpu_percent=100 * (after.cpu_seconds - before.cpu_seconds) / took,
        written_bytes=(after.written_bytes - before.written_bytes) / took,
        pss_mib=after.pss_mib,
        others_cores=max(0.0, others),
    )


def all_alarms(running: Server) -> list[dict[str, Any]]:
    pages = running.client("cloudwatch").get_paginator("describe_alarms").paginate()
    return [alarm for page in pages for alarm in page["MetricAlarms"]]


def render(spans: Sequence[Span], seconds: float) -> str:
    first, last = spans[0], spans[-1]
    added = last.cpu_percent - first.cpu_percent
    lines = [
        *heading("The costs of alarms and targets in control"),
        *describe_machine(("sagehen", "sqlalchemy", "boto3"), load=False),
        f"- One server with {last.targets} variants of an instance each, which nobody calls; "
        f"{seconds:.0f} s each, {SETTLE_SECONDS:.0f} s after the last change.",
        f"- Other processes used up to {max(span.others_cores for span in spans):.2f} cores "
        "meanwhile.",
        "",
        "| with | alarms | in ALARM | targets | CPU % of a core | more than without | "
        "written B/s | PSS MiB |",
        "|---|---|---|---|---|---|---|---|",
        *(row_of(cells(span, first)) for span in spans),
        "",
        verdict(
            added < MOST_PERCENT,
            f"alarms and targets together take less than {MOST_PERCENT:g} % of a core: "
            f"{added:.2f} %",
        ),
        "",
    ]
    return "\n".join(lines)


def cells(span: Span, first: Span) -> list[str]:
    return [
        span.name,
        str(span.alarms),
        str(span.in_alarm),
        str(span.targets),
        f"{span.cpu_percent:.2f}",
        f"{span.cpu_percent - first.cpu_percent:.2f}",
        f"{span.written_bytes:,.0f}",
        f"{span.pss_mib:.0f}",
    ]


if __name__ == "__main__":
    main()
