"""The servers of batching.py: Sagehen with batching on and off, and two peers with theirs on."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from batching_models import Kind, StoredModel, first_number
from environments import Environment
from peer_servers import Form, Plan, mlserver, serve
from sides import ROLE, Server, Side, packed, server

BUCKET = "benchmark"
NAME = "batching"


@dataclass(frozen=True)
class Contestant:
    """A server in one mode."""

    key: str
    name: str
    package: str
    start: Callable[[Kind, StoredModel, Path, Path], AbstractContextManager[Side]]
    """Gets the model, an empty folder and the cache of environments."""


@contextmanager
def sagehen(
    kind: Kind, stored: StoredModel, folder: Path, cache: Path, **environment: str
) -> Iterator[Side]:
    with server(folder) as running:
        deploy(kind, stored, running, environment)
        host, port = running.address
        yield Side("Sagehen", host, port, partial(ask_sagehen, running, kind), first_number)


def ask_sagehen(running: Server, kind: Kind, question: str) -> bytes:
    return running.signed_request(NAME, kind.body % question, Content_Type=kind.content_type)


def deploy(kind: Kind, stored: StoredModel, running: Server, environment: dict[str, str]) -> None:
    s3, control = running.client("s3"), running.client("sagemaker")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=packed(stored.files))
    container = {
        "Image": kind.image,
        "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz",
        "Environment": {**kind.environment, **environment},
    }
    control.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": NAME,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    control.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
    control.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    waiter = control.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def peer(
    key: str, plan_for: Callable[[Kind, Environment, Path, int], Plan]
) -> Callable[[Kind, StoredModel, Path, Path], AbstractContextManager[Side]]:
    def start(
        kind: Kind, stored: StoredModel, folder: Path, cache: Path
    ) -> AbstractContextManager[Side]:
        plan = partial(plan_for, kind)
        return serve(key, plan, stored.path, folder, cache, kind.requirements, kind.key)

    return start


def litserve(kind: Kind, peer_environment: Environment, folder: Path, port: int) -> Plan:
    question = '"%s"' if _asks_texts(kind) else "[%s]"
    form = Form("application/json", f'{{"question": {question}}}', first_number)
    command = [str(peer_environment.tools / "python"), "app.py", str(port)]
    return Plan(command, "/predict", form, {"BENCHMARK_KIND": kind.key})


def mlserver_batching(kind: Kind, peer_environment: Environment, folder: Path, port: int) -> Plan:
    plan = mlserver(
        peer_environment,
        folder,
        port,
        MLSERVER_PARALLEL_WORKERS="0",
        MLSERVER_MODEL_MAX_BATCH_SIZE="64",
        MLSERVER_MODEL_MAX_BATCH_TIME="0.005",
        BENCHMARK_KIND=kind.key,
    )
    tensor = '"shape":[1,1],"datatype":"BYTES","data":["%s"]'
    if not _asks_texts(kind):
        tensor = '"shape":[1,6],"datatype":"FP32","data":[%s]'
    form = Form("application/json", f'{{"inputs":[{{"name":"row",{tensor}}}]}}', _first_output)
    return Plan(plan.command, "/v2/models/model/infer", form, plan.variables)


def _asks_texts(kind: Kind) -> bool:
    return kind.key == "huggingface"


def _first_output(answer: str) -> float:
    return first_number(answer.partition('"data":')[2])


CONTESTANTS = (
    Contestant("sagehen", "Sagehen, batching as it comes", "sagehen", sagehen),
    Contestant(
        "sagehen-off",
        "Sagehen, batching off",
        "sagehen",
        partial(sagehen, SAGEMAKER_TS_BATCH_SIZE="1"),
    ),
    Contestant("litserve", "LitServe, batching", "litserve", peer("litserve_batching", litserve)),
    Contestant(
        "mlserver",
        "MLServer, one process, batching",
        "mlserver",
        peer("mlserver_batching", mlserver_batching),
    ),
)
KEYS = tuple(contestant.key for contestant in CONTESTANTS)
