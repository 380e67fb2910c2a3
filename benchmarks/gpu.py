"""Measures PyTorch models on a GPU beside the same models on the processor, through the gateway.

    python3 benchmarks/gpu.py [--seconds 3] [--repeats 2] [--connections 1,8,64,256]
        [--models small,medium] [--only card,card-off,…] [--save]

Both are TorchScript files behind endpoints of one server: on an instance type with a GPU, with
batching as it comes and off, and on one without, where a call has one thread (the default) or one
for each core. All answers are compared with the model's own on
the processor. One endpoint is measured at a time, in turns, `repeats` times; the tables give the
medians. The model's own calls, without any server, are below them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from batching_models import first_number
from frame import Measured, heading, keep, measure, middle, numbers, options, row_of, some
from house import ask
from machine import describe_machine
from other_load import OtherLoad
from sides import ROLE, Failed, Server, Side, packed, server

CONNECTIONS = (1, 8, 64, 256)
ROWS = 64
TOLERANCE = 1e-4
BUCKET = "benchmark"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-gpu-py312"
CARD_TYPE, PROCESSOR_TYPE = "ml.g5.xlarge", "ml.c5.4xlarge"
CALLS = (1, 8, 64)
"""rows of a call without a server"""
CALL_SECONDS = 1.0


@dataclass(frozen=True)
class Model:
    """A TorchScript module, and rows for it."""

    name: str
    make: Callable[[Any], Any]
    """Gets PyTorch."""
    rows: Callable[[np.random.Generator], np.ndarray]


def make_small(torch: Any) -> Any:
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    layers = (linear(16, 256), relu(), linear(256, 256), relu(), linear(256, 8))
    return torch.jit.script(torch.nn.Sequential(*layers))


def make_medium(torch: Any) -> Any:
    """As many weights as BERT-base; texts are 128 tokens, sent as numbers."""

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = torch.nn.Embedding(30_000, 768)
            layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.output = torch.nn.Linear(768, 8)

        def forward(self, numbers):  # type: ignore[no-untyped-def]
            return self.output(self.layers(self.tokens(numbers.long())).mean(1))

    example = torch.randint(0, 30_000, (2, 128)).float()
    with torch.no_grad():
        # What the trace computes is checked against the processor's answers later.
        return torch.jit.trace(Encoder().eval(), example, check_trace=False)


MODELS = {
    "small": Model(
        "Small: three layers, 72,000 weights, 16 numbers a request",
        make_small,
        lambda generator: generator.normal(size=(ROWS, 16)).round(3),
    ),
    "medium": Model(
        "Medium: an encoder of 12 layers, 108 million weights, 128 tokens a request",
        make_medium,
        lambda generator: generator.integers(0, 30_000, (ROWS, 128)),
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a model runs, and how."""

    name: str
    instance_type: str
    environment: dict[str, str]


PLACES = {
    "card": Place("GPU, batching as it comes", CARD_TYPE, {}),
    "card-off": Place("GPU, batching off", CARD_TYPE, {"SAGEMAKER_TS_BATCH_SIZE": "1"}),
    "processor": Place("Processor, one thread a call", PROCESSOR_TYPE, {}),
    "processor-cores": Place(
        "Processor, all cores a call",
        PROCESSOR_TYPE,
        {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))},
    ),
}


@dataclass(frozen=True)
class StoredModel:
    path: Path
    questions: list[str]
    """JSON of one row"""
    expected: np.ndarray
    """The first number of each answer, by the processor."""


def main() -> None:
    arguments = parse_arguments()
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU.")
    other_load = OtherLoad(ignored=arguments.at_once)
    report = [*heading("GPU"), *describe_machine(("sagehen", "torch", "uvloop")), card()]
    tables = []
    for key in arguments.models:
        with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
            stored = store(MODELS[key], Path(folder), torch)
            with server(Path(folder)) as running:
                tables += table_of(MODELS[key].name, stored, running, arguments, other_load)
            tables += ["", *bare_calls(stored, torch), ""]
            print("\n".join(tables), file=sys.stderr)
    text = "\n".join([*report, other_load.describe(), "", *tables])
    print(text)
    if arguments.save:
        keep(text, "gpu")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--connections", type=numbers, default=CONNECTIONS)
    parser.add_argument("--models", type=some(list(MODELS)), default=list(MODELS))
    parser.add_argument("--only", type=some(list(PLACES)), default=list(PLACES))
    return parser.parse_args()


def card() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return f"- {listed.splitlines()[0]} (driver's version last); float32 without TF32."


def store(model: Model, folder: Path, torch: Any) -> StoredModel:
    torch.manual_seed(7)
    module = model.make(torch).eval()
    path = folder / "model.pt"
    module.save(path)
    rows = model.rows(np.random.default_rng(7))
    with torch.inference_mode():
        expected = module(torch.from_numpy(rows.astype(np.float32)))[:, 0].numpy()
    return StoredModel(path, [json.dumps([row]) for row in rows.tolist()], expected)


def table_of(
    name: str,
    stored: StoredModel,
    running: Server,
    arguments: argparse.Namespace,
    other_load: OtherLoad,
) -> list[str]:
    """The medians of one model, as Markdown."""
    results: dict[str, dict[int, list[Measured]]] = {
        key: {count: [] for count in arguments.connections} for key in arguments.only
    }
    upload(running, stored)
    for repeat in range(arguments.repeats):
        for key in arguments.only:
            with deployed(running, PLACES[key], f"{key}-{repeat}") as side:
                check(side, stored)
                for count in arguments.connections:
                    try:
                        once = measure(side, stored.questions, count, arguments.seconds, other_load)
                    except Failed as failure:  # as where each answer takes too long
                        print(failure, file=sys.stderr)
                        break
                    results[key][count].append(once)
                    rate = once["requests_per_second"]
                    print(f"  {side.name:40} {count:3} connections {rate:8.0f}/s", file=sys.stderr)
    columns = "".join(f" {count}: req/s | p50 ms | p99 ms |" for count in arguments.connections)
    return [
        f"## {name}",
        "",
        f"| where |{columns}",
        f"|{'---|' * (1 + 3 * len(arguments.connections))}",
        *(row_of([PLACES[key].name, *cells(result)]) for key, result in results.items()),
    ]


def cells(result: dict[int, list[Measured]]) -> Iterator[str]:
    for measured in result.values():
        if not measured:
            yield from ("-", "-", "-")
            continue
        yield f"{middle(measured, 'requests_per_second'):,.0f}"
        yield from (f"{middle(measured, key):.2f}" for key in ("p50_ms", "p99_ms"))


def upload(running: Server, stored: StoredModel) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=packed({"model.pt": stored.path}))


@contextmanager
def deployed(running: Server, place: Place, name: str) -> Iterator[Side]:
    """An endpoint in service; its GPU is free again afterwards."""
    control = running.client("sagemaker")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz",
        "Environment": place.environment,
    }
    control.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": place.instance_type,
        "InitialInstanceCount": 1,
    }
    control.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    control.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = control.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    host, port = running.address
    request = partial(running.signed_request, name, Content_Type="application/json")
    yield Side(place.name, host, port, request, first_number)
    control.delete_endpoint(EndpointName=name)
    waiter = control.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def check(side: Side, stored: StoredModel) -> None:
    for question, expected in zip(stored.questions, stored.expected, strict=True):
        number = ask(side, question)
        if abs(number - expected) > TOLERANCE:
            raise Failed(f"{side.name} answers {number}, the model says {expected}.")


def bare_calls(stored: StoredModel, torch: Any) -> list[str]:
    """Times the bare module, without a server, from rows in memory to numbers in memory."""
    rows = np.array([json.loads(question)[0] for question in stored.questions], dtype=np.float32)
    lines = ["| the model itself | " + " | ".join(f"{count}: ms" for count in CALLS) + " |"]
    lines.append(f"|{'---|' * (1 + len(CALLS))}")
    for name, device in (("GPU", "cuda"), ("Processor, all cores", "cpu")):
        module = torch.jit.load(stored.path, map_location=device)
        times = [seconds_of(module, torch.from_numpy(rows[:count]), torch) for count in CALLS]
        lines.append(row_of([name, *(f"{1000 * seconds:.2f}" for seconds in times)]))
    torch.cuda.empty_cache()
    return lines


def seconds_of(module: Any, values: Any, torch: Any) -> float:
    """The median; the answer on the processor waits for the GPU."""
    device = next(module.parameters()).device
    taken: Sequence[float] = []
    begin = time.perf_counter()
    with torch.inference_mode():
        while time.perf_counter() < begin + 2 * CALL_SECONDS:
            before = time.perf_counter()
            module(values.to(device)).cpu()
            now = time.perf_counter()
            # The first half compiles and warms up.
            taken = [*taken, now - before] if now > begin + CALL_SECONDS else taken
    return float(np.median(taken))


if __name__ == "__main__":
    main()
