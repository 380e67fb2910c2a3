"""The servers that hold many models at once: how each is started, told of a model, and asked."""

import http.client
import json
import random
import socket
import string
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environments import PEERS, environment
from many_models import Catalog, archive, write_models
from peer_servers import START_SECONDS, TENSOR, reason
from sides import IMAGE, ROLE, Failed, Server, Side, as_bytes, free_port, process, server, wait_for

LOAD_SECONDS = 120
UPLOADS_AT_ONCE = 4
INSTANCE_TYPE = "ml.m5.4xlarge"
ROOM = "SAGEHEN_MODEL_CACHE_BYTES"


@dataclass(frozen=True)
class Host:
    """A server that runs; its side's requests are made of a catalog's questions."""

    side: Side
    load: Callable[[int], None] = lambda number: None
    """Has it load a model of that number, where that is not done by the first question."""


def endpoint_name(models: int, room_bytes: int | None = None) -> str:
    return f"models-{models}" + (f"-{room_bytes}" if room_bytes else "")


@contextmanager
def sagehen(catalog: Catalog, models: int, folder: Path) -> Iterator[tuple[Host, Server]]:
    """Starts Sagehen with one endpoint without a limit on loaded models."""
    with server(folder) as running:
        upload(catalog, models, running)
        yield deploy(running, models), running


def upload(catalog: Catalog, models: int, running: Server) -> None:
    """The archives `0.tar.gz` and so on in s3://benchmark/models/."""
    s3 = running.client("s3")
    s3.create_bucket(Bucket="benchmark")

    def put(number: int) -> None:
        body = archive(catalog.model(number))
        s3.put_object(Bucket="benchmark", Key=f"models/{number}.tar.gz", Body=body)

    with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
        for _ in pool.map(put, range(models)):
            pass


def deploy(running: Server, models: int, room_bytes: int | None = None) -> Host:
    """An endpoint over the archives, in service, that holds models of so many bytes."""
    sagemaker, name = running.client("sagemaker"), endpoint_name(models, room_bytes)
    container = {
        "Image": IMAGE,
        "Mode": "MultiModel",
        "ModelDataUrl": "s3://benchmark/models/",
        "Environment": {ROOM: str(room_bytes)} if room_bytes else {},
    }
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": INSTANCE_TYPE,
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})

    def request(question: str) -> bytes:
        number, row = question.split()
        target = f"{number}.tar.gz"
        return running.signed_request(
            name, row, Accept="text/csv", X_Amzn_SageMaker_Target_Model=target
        )

    return Host(Side("Sagehen (signed, through the gateway)", *running.address, request))


@contextmanager
def multi_model_server(
    catalog: Catalog, models: int, folder: Path, cache: Path
) -> Iterator[tuple[Host, None]]:
    """AWS's own for such containers: a worker process for each model."""
    peer_environment = environment("mms", cache)
    store = folder / "store"
    store.mkdir()
    for number in range(models):
        pack_mar(catalog.model(number), number, store)
    port, management = low_port(), low_port()
    configuration = string.Template((PEERS / "mms" / "config.properties").read_text())
    (folder / "config.properties").write_text(
        configuration.substitute(inference=port, management=management, store=store)
    )
    command = [str(peer_environment.tools / "multi-model-server"), "--foreground"]
    command += ["--model-store", str(store), "--mms-config", "config.properties"]
    command += ["--log-config", str(PEERS / "mms" / "log4j2.xml")]
    folders = {key: str(folder) for key in ("TEMP", "TMPDIR", "LOG_LOCATION", "METRICS_LOCATION")}

    def load(number: int) -> None:
        query = f"url={number}.mar&model_name=m{number}&initial_workers=1&synchronous=true"
        post(management, f"/models?{query}")

    side = Side("multi-model-server", "127.0.0.1", port, partial(mms_request, port))
    with started(command, folder, peer_environment.variables | folders, port, "/ping"):
        yield Host(side, load), None


def low_port() -> int:
    """A free one that fits 15 bits: it takes no other."""
    for port in random.sample(range(10_000, 32_000), 100):
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise Failed("No free port below 32000.")


def pack_mar(model: bytes, number: int, store: Path) -> None:
    """Makes the archive that model-archiver makes of a handler and a model."""
    manifest = {
        "runtime": "python",
        "model": {"modelName": f"m{number}", "handler": "service.py:handle"},
        "specificationVersion": "1.0",
        "implementationVersion": "1.0",
        "modelServerVersion": "1.0",
    }
    with zipfile.ZipFile(store / f"{number}.mar", "w") as packed:
        packed.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        packed.writestr("model.ubj", model)
        packed.write(PEERS / "mms" / "service.py", "service.py")


def mms_request(port: int, question: str) -> bytes:
    number, row = question.split()
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": "text/csv"}
    return as_bytes(f"/predictions/m{number}", headers, row)


@contextmanager
def mlserver(
    catalog: Catalog, models: int, folder: Path, cache: Path
) -> Iterator[tuple[Host, None]]:
    """Starts MLServer with its XGBoost runtime and its one worker process."""
    peer_environment = environment("mlserver_xgboost", cache)
    write_models(catalog, models, folder)
    (folder / "settings.json").write_bytes(
        (PEERS / "mlserver_xgboost" / "settings.json").read_bytes()
    )
    for number in range(models):
        model_folder = folder / f"m{number}"
        model_folder.mkdir()
        (folder / f"{number}.ubj").rename(model_folder / "model.ubj")
        (model_folder / "model-settings.json").write_text(
            json.dumps(
                {
                    "name": f"m{number}",
                    "implementation": "mlserver_xgboost.XGBoostModel",
                    "parameters": {"uri": "./model.ubj"},
                }
            )
        )
    port = free_port()
    variables = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_DEBUG": "false",
    }

    def load(number: int) -> None:
        post(port, f"/v2/repository/models/m{number}/load")

    command = [str(peer_environment.tools / "mlserver"), "start", "."]
    side = Side("MLServer", "127.0.0.1", port, partial(mlserver_request, port), TENSOR.number)
    with started(command, folder, peer_environment.variables | variables, port, "/v2/health/live"):
        yield Host(side, load), None


def mlserver_request(port: int, question: str) -> bytes:
    number, row = question.split()
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": TENSOR.content_type}
    return as_bytes(f"/v2/models/m{number}/infer", headers, TENSOR.body % row)


@contextmanager
def started(
    command: list[str], folder: Path, variables: dict[str, str], port: int, health: str
) -> Iterator[None]:
    log = folder / "log.txt"
    with process(command, log, folder, **variables) as running:
        try:
            wait_for(lambda: status(port, "GET", health)[0] == 200, running, START_SECONDS)
        except Failed as failure:
            raise Failed(f"{failure} {reason(log)}") from failure
        yield


def post(port: int, path: str) -> None:
    code, text = status(port, "POST", path)
    if code != 200:
        raise Failed(f"POST {path} answers {code}: {text[:300]}")


def status(port: int, method: str, path: str) -> tuple[int, str]:
    """Returns the status and text of an answer, or 0 and the error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LOAD_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()
