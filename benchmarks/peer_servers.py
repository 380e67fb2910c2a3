"""The servers that Sagehen is compared with: how each is started in its environment, and asked."""

import json
import shutil
import string
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from environments import PEERS, Environment, environment
from house import ask
from sides import Failed, Side, as_bytes, free_port, process, wait_for

START_SECONDS = 120
LAST_LINES = 3
"""lines of the log that are shown if a server does not start"""


@dataclass(frozen=True)
class Form:
    """The format of a request and its answer."""

    content_type: str
    body: str
    """%s stands for the row."""
    number: Callable[[str], float]


CSV = Form("text/csv", "%s", float)
ROW = Form("application/json", '{"row": [%s]}', float)
TENSOR = Form(
    "application/json",
    '{"inputs":[{"name":"row","shape":[1,6],"datatype":"FP32","data":[%s]}]}',
    lambda answer: float(json.loads(answer)["outputs"][0]["data"][0]),
)


@dataclass(frozen=True)
class Plan:
    """A peer's commands, and the requests that it accepts."""

    command: list[str]
    path: str
    form: Form
    variables: dict[str, str] = field(default_factory=dict)


Planner = Callable[[Environment, Path, int], Plan]
"""Gets the peer's environment, a copy of its set-up to run in, and the port to listen on."""


@contextmanager
def serve(
    key: str,
    plan_for: Planner,
    model: Path,
    folder: Path,
    cache: Path,
    libraries: Sequence[str] | None = None,
    model_name: str = "",
) -> Iterator[Side]:
    """The server of a peer, when it has answered a first request."""
    peer_environment = environment(key, cache, libraries, model_name)
    # Some write into the folder they run in.
    shutil.copytree(PEERS / key, folder, dirs_exist_ok=True)
    port = free_port()
    plan = plan_for(peer_environment, folder, port)
    variables = {"BENCHMARK_MODEL": str(model), "TMPDIR": str(folder)}
    variables = {**peer_environment.variables, **variables, **plan.variables}
    side = Side(key, "127.0.0.1", port, partial(request, plan, port), plan.form.number)
    log = folder / "log.txt"
    with process(plan.command, log, folder, **variables) as running:
        try:
            wait_for(lambda: answered(side), running, START_SECONDS)
        except Failed as failure:
            raise Failed(f"{failure} {reason(log)}") from failure
        yield side


def request(plan: Plan, port: int, row: str) -> bytes:
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": plan.form.content_type}
    return as_bytes(plan.path, headers, plan.form.body % row)


def answered(side: Side) -> bool:
    try:
        ask(side, ",".join("123456"))
    except Failed:
        return False
    return True


def reason(log: Path) -> str:
    """The last lines that a server wrote, of those about errors if there are such."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if "error" in line.lower()]
    return " / ".join((errors or lines)[-LAST_LINES:])


def litserve(
    peer_environment: Environment, folder: Path, port: int, fast_queue: bool = False
) -> Plan:
    form = Form(ROW.content_type, ROW.body, lambda answer: json.loads(answer)["prediction"])
    flags = ["--fast-queue"] if fast_queue else []
    return Plan(
        [str(peer_environment.tools / "python"), "app.py", str(port), *flags], "/predict", form
    )


def bentoml(peer_environment: Environment, folder: Path, port: int, workers: int = 1) -> Plan:
    command = [str(peer_environment.tools / "bentoml"), "serve", "service:House"]
    variables = {
        "BENCHMARK_WORKERS": str(workers),
        "BENTOML_HOME": str(folder),
        "BENTOML_DO_NOT_TRACK": "true",
    }
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return Plan([*command, *where], "/predict", ROW, variables)


def mlserver(peer_environment: Environment, folder: Path, port: int, **settings: str) -> Plan:
    variables = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_DEBUG": "false",
        **settings,
    }
    command = [str(peer_environment.tools / "mlserver"), "start", "."]
    return Plan(command, "/v2/models/house/infer", TENSOR, variables)


def mlserver_in_one_process(peer_environment: Environment, folder: Path, port: int) -> Plan:
    return mlserver(
        peer_environment,
        folder,
        port,
        MLSERVER_PARALLEL_WORKERS="0",
        MLSERVER_MODEL_MAX_BATCH_SIZE="64",
        MLSERVER_MODEL_MAX_BATCH_TIME="0.005",
    )


def ray_serve(peer_environment: Environment, folder: Path, port: int, **settings: str) -> Plan:
    variables = {"RAY_USAGE_STATS_ENABLED": "0", **settings}
    return Plan([str(peer_environment.tools / "python"), "app.py", str(port)], "/", CSV, variables)


def ray_serve_haproxy(peer_environment: Environment, folder: Path, port: int) -> Plan:
    """As it runs on a cluster of its makers: requests go from HAProxy to the replica."""
    return ray_serve(
        peer_environment,
        folder,
        port,
        RAY_SERVE_THROUGHPUT_OPTIMIZED="1",
        RAY_SERVE_ENABLE_HA_PROXY="1",
        RAY_SERVE_HAPROXY_NBTHREAD="1",
        RAY_SERVE_HAPROXY_METRICS_PORT=str(free_port()),
        RAY_SERVE_HAPROXY_STATS_PORT=str(free_port()),
        RAY_SERVE_HAPROXY_CONFIG_FILE_LOC=f"{folder}/haproxy.cfg",
        RAY_SERVE_HAPROXY_SOCKET_PATH=f"{folder}/haproxy.sock",
        RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH=f"{folder}/haproxy-metrics.sock",
        RAY_SERVE_HAPROXY_SERVER_STATE_BASE=str(folder),
        RAY_SERVE_HAPROXY_SERVER_STATE_FILE=f"{folder}/haproxy-state",
    )


def triton(peer_environment: Environment, folder: Path, port: int) -> Plan:
    """The wheel of PyTriton brings Triton itself and its Python backend."""
    home = peer_environment.packages / "pytriton" / "tritonserver"
    # The backend's Python is an isolated one, which does not look at PYTHONPATH.
    shutil.copy(PEERS / "common" / "booster.py", folder / "models" / "house" / "1")
    lay_out_backend(home, folder / "backends" / "python")
    command = [
        str(home / "bin" / "tritonserver"),
        f"--model-repository={folder}/models",
        f"--backend-directory={folder}/backends",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--http-thread-count=2",
        "--allow-grpc=false",
        "--allow-metrics=false",
    ]
    libraries = {"LD_LIBRARY_PATH": str(peer_environment.packages / "nvidia_pytriton.libs")}
    return Plan(command, "/v2/models/house/infer", TENSOR, libraries)


def lay_out_backend(home: Path, backend: Path) -> None:
    """With the program for this Python: the backend looks beside itself, the wheel has it apart."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = home / "python_backend_stubs" / python / "triton_python_backend_stub"
    backend.mkdir(parents=True)
    for part in [*(home / "backends" / "python").iterdir(), program]:
        (backend / part.name).symlink_to(part)


def torchserve(peer_environment: Environment, folder: Path, port: int) -> Plan:
    pack(folder / "handler.py", folder / "house.mar")
    configuration = folder / "config.properties"
    template = string.Template(configuration.read_text())
    ports = {name: free_port() for name in ("management", "metrics", "grpc", "grpc_management")}
    configuration.write_text(template.substitute(inference=port, store=folder, **ports))
    command = [str(peer_environment.tools / "torchserve"), "--foreground", "--disable-token-auth"]
    command += ["--ts-config", configuration.name, "--log-config", "log4j2.xml"]
    variables = {key: str(folder) for key in ("TEMP", "LOG_LOCATION", "METRICS_LOCATION")}
    return Plan([*command, "--model-store", str(folder)], "/predictions/house", CSV, variables)


def pack(handler: Path, archive: Path) -> None:
    """Makes the archive that torch-model-archiver makes of a handler."""
    model = {"modelName": "house", "modelVersion": "1.0", "handler": handler.name}
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
        packed.write(handler, handler.name)
