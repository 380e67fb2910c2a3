"""The servers that are compared: how each is started, and what its requests look like."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

HERE = Path(__file__).parent
TOOLS = Path(sys.executable).parent
ROLE = "arn:aws:iam::000000000000:role/benchmark"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
REGION = "us-east-1"
START_TIMEOUT_SECONDS = 60
END_TIMEOUT_SECONDS = 30
RESOURCES = ("Endpoint", "EndpointConfig", "Model")
"""in the order of deletion"""


class Failed(SystemExit):
    """A side does not start or answers wrongly; the benchmark ends, unless it knows better."""


@dataclass(frozen=True)
class Side:
    """A server that runs, and how to ask it for one row."""

    name: str
    host: str
    """Or the path of a Unix socket."""
    port: int
    request: Callable[[str], bytes]
    """A whole HTTP request for a CSV row. A signature in it is good for some minutes."""
    number: Callable[[str], float] = float
    """The prediction in the body of an answer."""
    home: Path | None = None
    """of a Sagehen server, for its token"""


@contextmanager
def all_sides(model: Path, folder: Path) -> Iterator[list[Side]]:
    """Every side at once; the ones that are not measured idle."""
    with ExitStack() as stack:
        starts = (sagehen(model, folder), fastapi(model, workers=1), fastapi(model, workers=2))
        yield [stack.enter_context(start) for start in starts]


@contextmanager
def two_trees(model: Path, folder: Path, before: Path) -> Iterator[list[Side]]:
    """Yields the server of another checkout, which needs its own `.venv`, and this one's."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(sagehen(model, folder / name, name, tools))
            for name, tools in (("before", before / ".venv" / "bin"), ("after", TOOLS))
        ]


@dataclass(frozen=True)
class Server:
    """Sagehen as `sagehen up` runs it."""

    url: str
    keys: dict[str, str]
    home: Path
    pid: int
    """of the supervisor, the parent of gateways, control and agent"""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def client(self, service: str) -> Any:
        return client_of(self.url, service, self.keys["access_key"], self.keys["secret_key"])

    def signed_request(self, endpoint: str, body: str, **more: str) -> bytes:
        """InvokeEndpoint as an AWS client sends it; `more` are headers."""
        fields = {name.replace("_", "-"): value for name, value in more.items()}
        path = f"/endpoints/{endpoint}/invocations"
        return self.signed(path, {"Content-Type": "text/csv"} | fields, body)

    def signed(self, path: str, fields: dict[str, str], body: str) -> bytes:
        """A POST to the runtime."""
        request = AWSRequest("POST", self.url + path, fields, body.encode())
        credentials = Credentials(self.keys["access_key"], self.keys["secret_key"])
        SigV4Auth(credentials, "sagemaker", REGION).add_auth(request)
        headers = {"Host": self.url.removeprefix("http://"), **dict(request.headers)}
        return as_bytes(path, headers, body)


@cache  # To make one takes a while.
def client_of(url: str, service: str, access_key: str, secret_key: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
    )


@contextmanager
def sagehen(
    model: Path,
    folder: Path,
    name: str = "Sagehen (signed, through the gateway)",
    tools: Path = TOOLS,
) -> Iterator[Side]:
    with server(folder, tools) as running:
        deploy(model, running)
        host, port = running.address
        yield Side(
            name,
            host,
            port,
            partial(running.signed_request, "house"),
            home=running.home,
        )


@contextmanager
def server(folder: Path, tools: Path = TOOLS, **settings: str) -> Iterator[Server]:
    """`settings` by their names in the environment: `SAGEHEN_…`; `tools` has the program.

    Where none matter, BENCHMARK_HOME may name the home of a server that runs already: to see that
    a benchmark works, which needs no server of its own.
    """
    home = Path(os.environ.get("BENCHMARK_HOME", ""))
    if home.name and not settings:
        with borrowed(running_in(home, int((home / "run" / "lock").read_text()))) as running:
            yield running
        return
    home = folder / "home"
    command = [str(tools / "sagehen"), "up", "--home", str(home), "--port", "0"]
    with process(command, **settings) as running:
        address = home / "run" / "address"
        wait_for(address.exists, running)
        yield running_in(home, running.pid)


def running_in(home: Path, pid: int) -> Server:
    keys = json.loads((home / "credentials.json").read_text())
    return Server((home / "run" / "address").read_text(), keys, home, pid)


@contextmanager
def borrowed(running: Server) -> Iterator[Server]:
    """Yields a server that runs already; removes at the end what was created meanwhile."""
    before = {kind: names_of(running, kind) for kind in RESOURCES}
    try:
        yield running
    finally:
        for kind in RESOURCES:
            delete = getattr(running.client("sagemaker"), f"delete_{snake(kind)}")
            for name in names_of(running, kind) - before[kind]:
                delete(**{f"{kind}Name": name})
        while names_of(running, RESOURCES[0]) - before[RESOURCES[0]]:
            time.sleep(0.05)


def names_of(running: Server, kind: str) -> set[str]:
    pages = running.client("sagemaker").get_paginator(f"list_{snake(kind)}s").paginate()
    return {resource[f"{kind}Name"] for page in pages for resource in page[f"{kind}s"]}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@contextmanager
def fastapi(model: Path, workers: int) -> Iterator[Side]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "plain_fastapi:app", "--port", str(port)]
    command += ["--workers", str(workers), "--no-access-log", "--log-level", "warning"]
    with process(command, BENCHMARK_MODEL=str(model)) as running:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/docs"), running)
        plural = "s" if workers > 1 else ""
        yield Side(
            f"FastAPI on uvicorn, {workers} worker{plural}",
            "127.0.0.1",
            port,
            lambda row: plain_request(port, row),
        )


def container_of(gateway: Side) -> Side:
    """The only instance of Sagehen's endpoint, asked without the gateway."""
    if gateway.home is None:
        raise Failed(f"{gateway.name} has no home, so its container cannot be found.")
    url = f"http://{gateway.host}:{gateway.port}/_sagehen/status"
    bearer = {"Authorization": f"Bearer {(gateway.home / 'token').read_text()}"}
    with urllib.request.urlopen(urllib.request.Request(url, None, bearer), timeout=10) as answer:
        endpoints = json.load(answer)["endpoints"]
    (endpoint,) = (candidate for candidate in endpoints if candidate["name"] == "house")
    ((instance,),) = [variant["instances"] for variant in endpoint["variants"]]
    path = instance["address"].partition(":")[2]
    return Side("The container, called directly", path, 0, partial(plain_request, 80))


@contextmanager
def process(
    command: Sequence[str], log: Path | None = None, folder: Path = HERE, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The program while it is needed, and nothing that it started afterwards."""
    # One thread a prediction on every side, as SageMaker's containers have it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with open(log or os.devnull, "wb") as output:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output if log else None,
            # A process group of its own: Ctrl-C is for us, who then end the whole group.
            start_new_session=True,
        )
    try:
        yield running
    finally:
        running.terminate()
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_TIMEOUT_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def wait_for(
    holds: Callable[[], bool],
    running: subprocess.Popen[bytes],
    seconds: float = START_TIMEOUT_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if running.poll() is not None:
            raise Failed(f"{running.args!r} ended with {running.returncode}.")
        if time.monotonic() > deadline:
            raise Failed(f"{running.args!r} did not come up in {seconds:.0f} s.")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def deploy(
    model: Path,
    running: Server,
    instances: int = 1,
    routing: str = "RANDOM",
    name: str = "house",
    environment: dict[str, str] | None = None,
) -> None:
    """One endpoint of that name with that model, in service."""
    archive = packed({"xgboost-model": model})
    running.client("s3").create_bucket(Bucket="benchmark")
    running.client("s3").put_object(Bucket="benchmark", Key="model.tar.gz", Body=archive)
    sagemaker = running.client("sagemaker")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": "s3://benchmark/model.tar.gz",
        "Environment": environment or {},
    }
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": instances,
        "RoutingConfig": {"RoutingStrategy": routing},
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def packed(files: dict[str, Path]) -> bytes:
    """A model.tar.gz, hardly compressed: nothing of that is measured."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        for name, file in files.items():
            archive.add(file, name)
    return content.getvalue()


def plain_request(port: int, row: str) -> bytes:
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": "text/csv"}
    return as_bytes("/invocations", headers, row)


def as_bytes(path: str, headers: dict[str, str], body: str) -> bytes:
    headers = {**headers, "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n{body}".encode()
