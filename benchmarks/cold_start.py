"""How long the first call to a serverless endpoint takes, and warm calls next to an instance.

    .venv/bin/python benchmarks/cold_start.py [--starts 20] [--calls 300] [--only MODULE] [--save]

Cold: an XGBoost, a scikit-learn and a PyTorch model, one after the other, each time when no
instance of the endpoint is left: from the call to its answer; in turns on a server without fork
servers and on one with them. Processor: the time of all processes of the container until that
answer, which other load changes little. Fork server: its proportional set size when it is ready.
Setup is ModelSetupTime: the agent's, from the request for an instance to its first healthy /ping,
with the first start of the endpoint, which is never forked. Warm: calls to the serverless endpoint
and to an endpoint with an instance of the same model, in turns, on one connection each. Frameworks
that are not installed are left out and named.
"""

import contextlib
import importlib.util
import io
import json
import os
import re
import statistics
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from frame import heading, keep, options, row_of
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.deploy import ROLE, Deployer
from support.server import eventually, server_maker

ACCOUNT = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
IDLE_SECONDS = "2"
TARGETS = {"XGBoost": 0.5, "scikit-learn": 0.7, "PyTorch": 3.0}
"""seconds, p90"""


class Framework(NamedTuple):
    name: str
    module: str
    image: str
    pack: Callable[[], bytes]
    body: bytes
    content_type: str


def archive(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def xgboost_model() -> bytes:
    import numpy
    import xgboost

    data = numpy.random.default_rng(7).normal(size=(2000, 6))
    matrix = xgboost.DMatrix(data, data.sum(axis=1), nthread=1)
    booster = xgboost.train({"max_depth": 5, "nthread": 1}, matrix, 100)
    return archive({"model.ubj": bytes(booster.save_raw("ubj"))})


def sklearn_model() -> bytes:
    import joblib
    import numpy
    from sklearn.ensemble import RandomForestRegressor

    data = numpy.random.default_rng(7).normal(size=(2000, 6))
    model = RandomForestRegressor(100, max_depth=5, n_jobs=1).fit(data, data.sum(axis=1))
    raw = io.BytesIO()
    joblib.dump(model, raw)
    script = (
        b"import joblib, os\n\ndef model_fn(folder):\n"
        b"    return joblib.load(os.path.join(folder, 'model.joblib'))\n"
    )
    return archive({"model.joblib": raw.getvalue(), "code/inference.py": script})


def torch_model() -> bytes:
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    raw = io.BytesIO()
    torch.jit.save(torch.jit.script(network), raw)
    script = (
        b"import os, torch\n\ndef model_fn(folder):\n"
        b"    return torch.jit.load(os.path.join(folder, 'model.pt')).eval()\n"
    )
    return archive({"model.pt": raw.getvalue(), "code/inference.py": script})


FRAMEWORKS = [
    Framework("XGBoost", "xgboost", "sagemaker-xgboost:3.0-5", xgboost_model, b"1,2,3,4,5,6",
              "text/csv"),
    Framework("scikit-learn", "sklearn", "sagemaker-scikit-learn:1.2-1-cpu-py3", sklearn_model,
              b"1,2,3,4,5,6", "text/csv"),
    Framework("PyTorch", "torch", "pytorch-inference:2.6-cpu-py312", torch_model,
              b"[[1.0,2.0,3.0,4.0,5.0,6.0]]", "application/json"),
]  # fmt: skip


class Bench:
    """The endpoints of one server."""

    def __init__(self, deployer: Deployer) -> None:
        self.deployer = deployer
        deployer.s3.create_bucket(Bucket="models")
        self._made: list[str] = []
        self.memory: dict[str, int] = {}
        """of fork servers, by module"""

    def make(self, framework: Framework) -> None:
        """A serverless endpoint of the framework's name, and one with an instance."""
        name, sagemaker = framework.module, self.deployer.sagemaker
        self.deployer.s3.put_object(
            Bucket="models", Key=f"{name}/model.tar.gz", Body=framework.pack()
        )
        environment = {"SAGEMAKER_PROGRAM": "inference.py"} if name != "xgboost" else {}
        sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": f"{ACCOUNT}/{framework.image}",
                "ModelDataUrl": f"s3://models/{name}/model.tar.gz",
                "Environment": environment,
            },
        )
        kinds: dict[str, dict[str, Any]] = {
            name: {"ServerlessConfig": {"MemorySizeInMB": 4096, "MaxConcurrency": 20}},
            f"{name}-instance": {"InstanceType": "ml.m5.large", "InitialInstanceCount": 1},
        }
        for endpoint, members in kinds.items():
            variant = {"VariantName": "AllTraffic", "ModelName": name, **members}
            sagemaker.create_endpoint_config(
                EndpointConfigName=endpoint, ProductionVariants=[variant]
            )
            sagemaker.create_endpoint(EndpointName=endpoint, EndpointConfigName=endpoint)
            described = self.deployer.settled(endpoint)
            if described["EndpointStatus"] != "InService":
                raise SystemExit(f"{endpoint}: {described['FailureReason']}")
        self._made.append(name)
        self.memory[name] = self.fork_server_bytes()

    def call(self, framework: Framework, endpoint: str) -> float:
        """Seconds from call to answer."""
        began = time.perf_counter()
        answer = self.deployer.runtime.invoke_endpoint(
            EndpointName=endpoint, Body=framework.body, ContentType=framework.content_type
        )
        answer["Body"].read()
        return time.perf_counter() - began

    def comes_to_zero(self, endpoint: str) -> None:
        eventually(lambda: not self._instances(endpoint))

    def _instances(self, endpoint: str) -> list[object]:
        status = json.loads(self.deployer.server.get("/_sagehen/status"))
        (described,) = (each for each in status["endpoints"] if each["name"] == endpoint)
        return list(described["variants"][0]["instances"])

    def setup_seconds(self, endpoint: str) -> float:
        """The mean of all starts."""
        metric = "sagehen_model_setup_time_microseconds"
        values = {}
        for line in self.deployer.server.get("/_sagehen/metrics").decode().splitlines():
            for part in ("sum", "count"):
                if line.startswith(f'{metric}_{part}{{endpoint="{endpoint}"'):
                    values[part] = float(line.rpartition(" ")[2])
        return values["sum"] / values["count"] / 1e6

    def fork_server_bytes(self) -> int:
        """Waits for the last one to be ready; 0 without fork servers."""
        if self.deployer.server.settings.get("SAGEHEN_FORK_SERVERS") == "0":
            return 0
        log = self.deployer.server.home / "logs" / "agent.log"
        ready = "A fork server is ready.* memory_bytes=([0-9]+)"
        eventually(lambda: len(re.findall(ready, log.read_text())) == len(self._made))
        return int(re.findall(ready, log.read_text())[-1])

    def processor_seconds(self, endpoint: str) -> float:
        """Processor seconds that all processes of the endpoint's container have used."""
        (instance,) = self._instances(endpoint)
        agent = psutil.Process(self.deployer.server.pids()["agent"])
        times = 0.0
        for container in agent.children():
            with contextlib.suppress(psutil.Error, OSError):
                if str(instance["id"]) in container.environ().get("SAGEHEN_BASE_DIR", ""):
                    for process in (container, *container.children(recursive=True)):
                        times += sum(process.cpu_times()[:2])
        return times

    def forked_starts(self, endpoint: str) -> int:
        """Counts the starts of the endpoint's containers by a fork server."""
        lines = self.deployer.server.get("/_sagehen/metrics").decode().splitlines()
        name = f'sagehen_container_starts_total{{endpoint="{endpoint}"'
        forked = [line for line in lines if line.startswith(name) and 'start="forked"' in line]
        return sum(int(float(line.rpartition(" ")[2])) for line in forked)


class Starts:
    def __init__(self) -> None:
        self.seconds: list[float] = []
        """from call to answer"""
        self.processor: list[float] = []
        """seconds, until the answer"""


def cold(benches: Sequence[Bench], framework: Framework, starts: int) -> list[Starts]:
    """For each server, in turns."""
    of_benches = [Starts() for _ in benches]
    for _ in range(starts):
        for bench, of_bench in zip(benches, of_benches, strict=True):
            bench.comes_to_zero(framework.module)
            of_bench.seconds.append(bench.call(framework, framework.module))
            of_bench.processor.append(bench.processor_seconds(framework.module))
            is_forked = bench.forked_starts(framework.module) > 0
            if is_forked != (bench.memory[framework.module] > 0):
                raise SystemExit(f"{framework.name} was started in the other way")
    return of_benches


def warm(bench: Bench, framework: Framework, calls: int) -> tuple[list[float], list[float]]:
    serverless, instance = [], []
    for _ in range(calls):
        serverless.append(bench.call(framework, framework.module))
        instance.append(bench.call(framework, f"{framework.module}-instance"))
    return sorted(serverless), sorted(instance)


def share(sorted_values: list[float], part: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * part))]


def measure(
    benches: Sequence[Bench], chosen: Sequence[Framework], starts: int, calls: int
) -> tuple[list[str], list[str]]:
    rows, missing = [], []
    for framework in chosen:
        if importlib.util.find_spec(framework.module) is None:
            missing.append(framework.name)
            continue
        for bench in benches:
            bench.make(framework)
        for bench, began in zip(benches, cold(benches, framework, starts), strict=True):
            rows.append(row(bench, framework, began, *warm(bench, framework, calls)))
            print(rows[-1], flush=True)
    return rows, missing


def row(
    bench: Bench,
    framework: Framework,
    cold_starts: Starts,
    serverless: list[float],
    instance: list[float],
) -> str:
    memory, began = bench.memory[framework.module], sorted(cold_starts.seconds)
    return row_of(
        (
            framework.name,
            f"{memory / 2**20:.0f}" if memory else "none",
            f"{statistics.median(began):.3f}",
            f"{share(began, 0.9):.3f}",
            f"{began[-1]:.3f}",
            f"{TARGETS[framework.name]:.1f}",
            f"{statistics.median(cold_starts.processor):.2f}",
            f"{bench.setup_seconds(framework.module):.3f}",
            *(
                f"{share(values, part) * 1000:.2f}"
                for values in (serverless, instance)
                for part in (0.5, 0.9)
            ),
        )
    )


def main() -> None:
    parser = options(__doc__, seconds=0)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--calls", type=int, default=300)
    modules = [framework.module for framework in FRAMEWORKS]
    parser.add_argument("--only", choices=modules, help="one framework, by its module")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with server_maker() as make:
        chosen = {"serverless_idle_seconds": IDLE_SECONDS, "gateways": "2"}
        servers = [make(gates=False, fork_servers=most, **chosen) for most in ("0", "3")]
        benches = [Bench(Deployer(server)) for server in servers]
        rows, missing = measure(
            benches,
            [each for each in FRAMEWORKS if arguments.only in (None, each.module)],
            arguments.starts,
            arguments.calls,
        )
    titles = (
        "framework", "fork server MiB", "cold p50 s", "p90 s", "worst s", "target s",
        "processor p50 s", "setup, mean s", "warm p50 ms", "p90 ms", "instance p50 ms", "p90 ms",
    )  # fmt: skip
    lines = [
        *heading("Cold starts of serverless endpoints"),
        *describe_machine(),
        f"- Load when it began: {load:.2f} processes.",
        f"- {arguments.starts} cold calls and {arguments.calls} warm ones each, with boto3.",
        *([f"- not installed: {', '.join(missing)}"] if missing else []),
        "",
        row_of(titles),
        row_of("---" for _ in titles),
        *rows,
    ]
    report = "\n".join(lines)
    print(report)
    if arguments.save:
        keep(report, "cold_start")


if __name__ == "__main__":
    main()
