"""Answers from offline results: how long they take, and what ten million keys cost.

    python3 benchmarks/offline_results.py [--keys 10000000] [--connections 1,8,64] [--save]

An endpoint without a model is created over results in CSV, of a key and a number each, in objects
of a million rows; the table says how long it takes until it is in service, and what the process
that builds its store takes. Then random keys are looked up in the store by this process: with its
pages in memory, and after the kernel was told to forget them. Then the endpoint is asked for random
keys, one a request, next to an endpoint with an XGBoost model of 100 trees on the same server.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from frame import heading, keep, measure, numbers, options, row_of
from house import make_model
from load import Tally, summary
from machine import describe_machine
from other_load import OtherLoad
from sides import IMAGE, ROLE, Failed, Server, Side, deploy, server

from sagehen.frame.offline_results.store import ResultStore

BUCKET = "offline-results"
ENDPOINT = "offline"
ROWS_OF_AN_OBJECT = 1_000_000
QUESTIONS = 5_000
"""different requests"""
LOOK_UPS = 100_000
COLD_LOOK_UPS = 1_000
LONGEST_BUILD_SECONDS = 3600.0
POLL_SECONDS = 0.05
BUILDER = "sagehen.app.roles.offline_results"
GATEWAY = "sagehen.app.roles.gateway"


class Build(NamedTuple):
    seconds: float
    """until the endpoint is in service"""
    peak_mib: float
    """of the process that builds, its pages of files not counted"""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="sgh-") as name, server(Path(name)) as running:
        question = make_model(Path(name))
        deploy(question.model, running)
        input_bytes = put_results(running, arguments.keys)
        memory_before = gateway_mib(running)
        build = create_endpoint(running)
        keys = random.Random(7).choices(range(arguments.keys), k=QUESTIONS)
        sides = [
            (side_of(running, "offline results", ENDPOINT), [key_of(number) for number in keys]),
            (side_of(running, "XGBoost model", "house"), question.rows),
        ]
        parts = [*heading(f"Offline results with {arguments.keys:,} keys"), *describe_machine()]
        parts += ["", *build_table(running, build, arguments.keys, input_bytes)]
        parts += ["", *look_up_table(store_path(running), arguments.keys)]
        parts += ["", *request_table(sides, arguments)]
        memory = f"{memory_before:.0f} MiB before the endpoint was created"
        parts += [
            "",
            f"Gateways, of their own: {memory}, {gateway_mib(running):.0f} MiB afterwards.",
        ]
    report = "\n".join(parts) + "\n"
    print(report)
    if arguments.save:
        keep(report, "offline-results")


def key_of(number: int) -> str:
    """Returns keys whose order is not that of the rows."""
    return f"user-{number * 2_654_435_761 % 2**32:010d}"


def put_results(running: Server, keys: int) -> int:
    """Writes the objects; returns their bytes."""
    s3 = running.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    total = 0
    for start in range(0, keys, ROWS_OF_AN_OBJECT):
        numbers_of_object = range(start, min(start + ROWS_OF_AN_OBJECT, keys))
        body = "".join(f"{key_of(number)},0.{number:08d}\n" for number in numbers_of_object)
        s3.put_object(Bucket=BUCKET, Key=f"job/{start:012d}.csv.out", Body=body.encode())
        total += len(body)
    return total


def create_endpoint(running: Server) -> Build:
    sagemaker = running.client("sagemaker")
    environment = {
        "SAGEHEN_OFFLINE_RESULTS": f"s3://{BUCKET}/job/",
        "SAGEHEN_OFFLINE_RESULTS_KEY": "0",
        "SAGEHEN_OFFLINE_RESULTS_ONLY": "true",
    }
    container = {"Image": IMAGE, "Environment": environment}
    sagemaker.create_model(ModelName=ENDPOINT, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": ENDPOINT,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=ENDPOINT, ProductionVariants=[variant])
    began = time.perf_counter()
    sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    ended = threading.Event()
    peak = [0.0]
    watch = threading.Thread(target=_watch_builder, args=(running, ended, peak))
    watch.start()
    try:
        _wait_until_in_service(running, began)
    finally:
        ended.set()
        watch.join()
    return Build(time.perf_counter() - began, peak[0])


def _wait_until_in_service(running: Server, began: float) -> None:
    sagemaker = running.client("sagemaker")
    while time.perf_counter() - began < LONGEST_BUILD_SECONDS:
        described = sagemaker.describe_endpoint(EndpointName=ENDPOINT)
        if described["EndpointStatus"] == "InService":
            return
        if described["EndpointStatus"] != "Creating":
            raise Failed(f"The endpoint is {described['EndpointStatus']}: {described}")
        time.sleep(POLL_SECONDS)
    raise Failed(f"The endpoint was not in service after {LONGEST_BUILD_SECONDS} s.")


def _watch_builder(running: Server, ended: threading.Event, peak: list[float]) -> None:
    while not ended.wait(POLL_SECONDS):
        for process in processes(running, BUILDER):
            try:
                peak[0] = max(peak[0], _anonymous_mib(process))
            except (psutil.Error, OSError):
                continue


def processes(running: Server, role: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(running.pid).children(recursive=True):
        try:
            if role in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def _anonymous_mib(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def gateway_mib(running: Server) -> float:
    return sum(each.memory_full_info().uss for each in processes(running, GATEWAY)) / 2**20


def described_store(running: Server) -> dict[str, Any]:
    token = (running.home / "token").read_text()
    request = urllib.request.Request(
        f"{running.url}/_sagehen/offline-results/{ENDPOINT}",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request) as answer:
        (described,) = json.loads(answer.read())["offline_results"]
    return dict(described)


def store_path(running: Server) -> Path:
    stores = (running.home / "offline-results").glob("*.db")
    return max(stores, key=lambda path: path.stat().st_mtime)


def build_table(running: Server, build: Build, keys: int, input_bytes: int) -> list[str]:
    store = described_store(running)
    if store["keys"] != keys:
        raise Failed(f"The store has {store['keys']} keys, and not {keys}.")
    return [
        "| rows | input | until in service | rows/s | store | memory of the builder |",
        "|---|---|---|---|---|---|",
        row_of(
            (
                f"{keys:,}",
                f"{input_bytes / 2**20:.0f} MiB",
                f"{build.seconds:.1f} s",
                f"{keys / build.seconds:,.0f}",
                f"{store['bytes'] / 2**20:.0f} MiB",
                f"{build.peak_mib:.0f} MiB",
            )
        ),
    ]


def look_up_table(path: Path, keys: int) -> list[str]:
    rng = random.Random(11)
    chosen = [key_of(rng.randrange(keys)).encode() for _ in range(LOOK_UPS)]
    look_up(path, chosen)  # so that its pages are in memory
    warm = look_up(path, chosen)
    forget_pages(path)
    cold = look_up(path, chosen[:COLD_LOOK_UPS])
    return [
        "| look-ups in this process | a second | p50 | p99 |",
        "|---|---|---|---|",
        *(
            row_of(
                (
                    name,
                    f"{result['requests_per_second']:,.0f}",
                    f"{result['p50_ms'] * 1000:.1f} µs",
                    f"{result['p99_ms'] * 1000:.1f} µs",
                )
            )
            for name, result in (("pages in memory", warm), ("pages on the disk", cold))
        ),
    ]


def look_up(path: Path, keys: Sequence[bytes]) -> dict[str, float]:
    store = ResultStore(path)
    tally = Tally()
    start = now = time.perf_counter()
    for key in keys:
        if store.get(key) is None:
            raise Failed(f"The store does not know {key!r}.")
        before, now = now, time.perf_counter()
        tally.milliseconds.append((now - before) * 1000)
    return summary(tally, now - start)


def forget_pages(path: Path) -> None:
    """Does nothing on a tmpfs."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def side_of(running: Server, name: str, endpoint: str) -> Side:
    host, port = running.address
    return Side(name, host, port, partial(running.signed_request, endpoint), home=running.home)


def request_table(
    sides: Sequence[tuple[Side, Sequence[str]]], arguments: argparse.Namespace
) -> list[str]:
    other_load = OtherLoad(arguments.at_once)
    lines = [
        "| connections | answered from | requests/s | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
    ]
    for connections in arguments.connections:
        for side, rows in sides:
            measured = measure(side, rows, connections, arguments.seconds, other_load)
            cells = (f"{measured['requests_per_second']:,.0f}", f"{measured['p50_ms']:.2f}")
            lines.append(row_of((str(connections), side.name, *cells, f"{measured['p99_ms']:.2f}")))
    return [*lines, "", other_load.describe()]


def _arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=4)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--connections", type=numbers, default=[1, 8, 64], metavar="1,8,64")
    return parser.parse_args()


if __name__ == "__main__":
    main()
