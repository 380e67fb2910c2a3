"""Requests to one container as a process and in Docker: the same program, in turns.

    python3 benchmarks/docker_launcher.py [--seconds 3] [--repeats 7] [--save]

The program is examples/containers/compiled/serve.c, which answers at once: so a difference is the
launcher's, as large as it can be. The image has nothing else. The engine is one of its own, which
needs root and dockerd.
"""

import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from frame import Measured, heading, keep, measure, middle, options, row_of
from machine import describe_machine
from other_load import OtherLoad
from sides import ROLE, Server, Side, server

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.docker.engine import running_engine
from support.recipes import FOLDER, RECIPES

CONNECTIONS = (1, 8, 64)
ROWS = ["1,2"]
NAME = "compiled"
SIDES = ("process", "docker")

Results = dict[tuple[str, int], list[Measured]]
"""by side and connections"""


def main() -> None:
    parser = options(__doc__, seconds=3)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as made, ExitStack() as stack:
        folder = Path(made)
        program = compile_program(folder)
        engine = stack.enter_context(running_engine())
        import_program(engine, program)
        sides = [
            stack.enter_context(deployed(folder / str(number), name, settings))
            for number, (name, settings) in enumerate(
                zip(SIDES, settings_of(program, engine), strict=True)
            )
        ]
        results = measure_all(sides, arguments.seconds, arguments.repeats, other_load)
        report = render(results, other_load, engine.version()["Version"])
    print(report)
    if arguments.save:
        keep(report, "docker-launcher")


def compile_program(folder: Path) -> Path:
    program = folder / "serve"
    source = str(FOLDER / "compiled" / "serve.c")
    subprocess.run(["cc", "-O2", "-static", "-pthread", "-o", program, source], check=True)
    return program


def import_program(engine: Any, program: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        archive.add(program, "/serve")
    changes = ['ENTRYPOINT ["/serve"]']
    engine.api.import_image_from_data(raw.getvalue(), repository=NAME, tag="1", changes=changes)


def settings_of(program: Path, engine: Any) -> list[dict[str, str]]:
    process = {
        "SAGEHEN_IMAGES": json.dumps({NAME: [str(program)]}),
        "SAGEHEN_SHARED_FOLDERS": str(program.parent),
    }
    docker = {"SAGEHEN_LAUNCHER": "docker", "SAGEHEN_DOCKER_HOST": engine.host}
    return [process, docker]


@contextmanager
def deployed(folder: Path, name: str, settings: dict[str, str]) -> Iterator[Side]:
    with server(folder, **settings) as running:
        create_endpoint(running)
        host, port = running.address
        yield Side(name, host, port, partial(running.signed_request, NAME))


def create_endpoint(running: Server) -> None:
    sagemaker, s3 = running.client("sagemaker"), running.client("s3")
    s3.create_bucket(Bucket="models")
    s3.put_object(Bucket="models", Key="m.tar.gz", Body=RECIPES[NAME].archive("m"))
    container = {"Image": f"{NAME}:1", "ModelDataUrl": "s3://models/m.tar.gz"}
    sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": NAME,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


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
    return results


def render(results: Results, other_load: OtherLoad, engine: str) -> str:
    lines = [*heading("One program as a process and in Docker"), *describe_machine(("sagehen",))]
    lines += [f"- Docker {engine}", other_load.describe(), ""]
    lines += [
        "| connections | launcher | requests/s | p50, ms | p99, ms |",
        "|---|---|---|---|---|",
    ]
    for (name, connections), measured in sorted(results.items(), key=lambda item: item[0][1]):
        cells = [f"{middle(measured, key):.3f}" for key in ("p50_ms", "p99_ms")]
        rate = f"{middle(measured, 'requests_per_second'):.0f}"
        lines.append(row_of([str(connections), name, rate, *cells]))
    lines.append("")
    for connections in CONNECTIONS:
        changes = [ratio(results, connections, key) for key in ("requests_per_second", "p99_ms")]
        lines.append(
            f"- {connections} connections, docker beside process, median of the pairs: "
            f"{changes[0]:+.1%} requests/s, {changes[1]:+.1%} p99"
        )
    return "\n".join([*lines, ""])


def ratio(results: Results, connections: int, key: str) -> float:
    """By how much Docker is above the process, as the median of measured pairs."""
    pairs = zip(results["docker", connections], results["process", connections], strict=True)
    return statistics.median(docker[key] / process[key] - 1 for docker, process in pairs)


if __name__ == "__main__":
    main()
