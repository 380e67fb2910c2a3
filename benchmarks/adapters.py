"""The microseconds that an adapter of the model server adds to the framework's own call.

    python3 benchmarks/adapters.py [--seconds 2] [--only onnx,lightgbm] [--save]

In one process, without a server: reading a CSV body, predicting and writing JSON, next to the bare
call on an array that is ready. One thread on both sides. What is not installed is named.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from adapter_cases import CASES, FEATURES
from frame import heading, keep, options, row_of
from machine import describe_machine
from sides import Failed

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters import make_adapter
from sagehen.containers.modelserver.environment import read_environment

ROWS = (1, 64)
ROUND_SECONDS = 0.01
"""Between two looks at the clock."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def main() -> None:
    parser = options(__doc__, seconds=2)
    parser.add_argument("--only", default=",".join(CASES), help="some of the adapters")
    arguments = parser.parse_args()
    lines, packages = [], ["sagehen", "numpy"]
    for name in arguments.only.split(","):
        try:
            lines += measured(name, arguments.seconds)
            packages.append(CASES[name].package)
        except (Unavailable, ImportError) as problem:
            lines.append(row_of([name, str(problem), "", "", ""]))
    head = ["| adapter | rows | bare call, µs | with the adapter, µs | added, µs |"]
    machine = describe_machine(packages, load=False)
    report = "\n".join(
        [*heading("Cost of an adapter"), *machine, "", *head, "|---|---|---|---|---|", *lines, ""]
    )
    print(report)
    if arguments.save:
        keep(report, "adapters")


def measured(name: str, seconds: float) -> list[str]:
    """A line of the table for each number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        model_dir = Path(folder, "model")
        model_dir.mkdir()
        predict = CASES[name].make(model_dir)
        environment = read_environment({"SAGEHEN_ADAPTER": name, "SAGEMAKER_BASE_DIR": folder})
        model = make_adapter(environment).load(model_dir)
        lines = [line(name, model, predict, count, seconds) for count in ROWS]
        model.close()
    return lines


def line(name: str, model: Any, predict: Callable[[Any], Any], count: int, seconds: float) -> str:
    rows = np.random.default_rng(count).normal(size=(count, FEATURES)).astype(np.float32)
    ready = rows.astype(CASES[name].dtype)
    body = "\n".join(",".join(map(repr, row)) for row in rows.tolist()).encode()

    def ours() -> Any:
        (prediction,) = model.predict([model.decode(body, "text/csv")])
        return model.encode(prediction, "application/json").body

    check(name, ours(), predict(ready))
    bare, whole = least_microseconds([lambda: predict(ready), ours], seconds)
    return row_of([name, str(count), f"{bare:.1f}", f"{whole:.1f}", f"{whole - bare:+.1f}"])


def check(name: str, answer: bytes, expected: Any) -> None:
    json.loads(answer)
    numbers = [float(number) for number in NUMBER.findall(answer.decode())]
    if not np.allclose(numbers, np.ravel(expected), rtol=1e-6):
        raise Failed(f"{name} answers {numbers[:3]} …, the framework {np.ravel(expected)[:3]} …")


def least_microseconds(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Returns the shortest round of each call, in turns: other load only adds time."""
    rounds = [calls_in(call, ROUND_SECONDS) for call in calls]
    least = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for at, (call, times) in enumerate(zip(calls, rounds, strict=True)):
            start = time.perf_counter()
            for _ in range(times):
                call()
            least[at] = min(least[at], (time.perf_counter() - start) / times)
    return [seconds_of_call * 1e6 for seconds_of_call in least]


def calls_in(call: Callable[[], Any], seconds: float) -> int:
    start, times = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        call()
        times += 1
    return max(times, 1)


if __name__ == "__main__":
    main()
