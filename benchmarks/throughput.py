"""One XGBoost model, one CSV row a request: Sagehen next to plain FastAPI, in one run.

    make bench          or    python3 benchmarks/throughput.py [--seconds 5] [--repeats 3] [--save]

The sides take turns, each measured `repeats` times at 1, 8 and 64 connections; the table gives the
medians. Every answer is compared with the model's own before anything is measured.
"""

import argparse
import datetime
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import xgboost
from load import connect
from machine import describe_machine
from others import Others
from sides import HERE, Side, all_sides

CONNECTIONS = (1, 8, 64)
ROWS = 64
WARM_UP_SHARE = 0.2
"""Of a measurement's time, under the same load, before it."""

Results = dict[tuple[str, int], list[dict[str, float]]]
"""Each measurement by side and connections."""


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        model, rows, expected = make_model(Path(folder))
        with all_sides(model, Path(folder)) as sides:
            for side in sides:
                check(side, rows, expected)
            others = Others()
            results = measure(sides, rows, Path(folder), arguments, others)
    report = render(results, others)
    print(report)
    if arguments.save:
        saved = HERE / "results" / f"{datetime.date.today().isoformat()}-throughput.md"
        saved.write_text(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--at-once", action="store_true", help="whatever else the machine does: to try it out"
    )
    parser.add_argument("--save", action="store_true", help="keep the table in results/")
    return parser.parse_args()


def make_model(folder: Path) -> tuple[Path, list[str], np.ndarray]:
    """100 trees over six features, rows to ask about, and what the model says of each."""
    generator = np.random.default_rng(7)
    data = generator.normal([1995, 3000, 4, 2, 1, 1.5], [10, 750, 1, 0.7, 0.2, 1], (20_000, 6))
    data = data.round(2)
    prices = data @ np.array([900, 150, 8_000, 12_000, 60_000, 15_000])
    booster = xgboost.train({"max_depth": 5}, xgboost.DMatrix(data, prices), 100)
    path = folder / "house.ubj"
    booster.save_model(path)
    rows = [",".join(map(str, row)) for row in data[:ROWS].tolist()]
    return path, rows, booster.inplace_predict(data[:ROWS].astype(np.float32))


def check(side: Side, rows: Sequence[str], expected: np.ndarray) -> None:
    """The side answers every row with what the model says."""
    for row, price in zip(rows, expected, strict=True):
        answer = ask(side, row)
        if np.float32(answer) != price:
            raise SystemExit(f"{side.name} answers {answer}, the model says {price}.")


def ask(side: Side, row: str) -> str:
    with connect((side.host, side.port)) as connection:
        connection.settimeout(30)
        connection.sendall(side.request(row))
        response = http.client.HTTPResponse(connection, method="POST")
        response.begin()
        body = response.read().decode()
    if response.status != 200:
        raise SystemExit(f"{side.name} answers {response.status}: {body}")
    return body


def measure(
    sides: Sequence[Side],
    rows: Sequence[str],
    folder: Path,
    arguments: argparse.Namespace,
    others: Others,
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(arguments.repeats):
        for connections in CONNECTIONS:
            for side in sides:
                put_under_load(side, rows, connections, WARM_UP_SHARE * arguments.seconds, folder)
                once = partial(put_under_load, side, rows, connections, arguments.seconds, folder)
                result = once() if arguments.at_once else others.undisturbed(once)
                results[side.name, connections].append(result)
                print(
                    f"{repeat + 1}/{arguments.repeats}  {connections:2} connections  "
                    f"{side.name:38} {result['requests_per_second']:8.0f}/s",
                    file=sys.stderr,
                )
    return results


def put_under_load(
    side: Side, rows: Sequence[str], connections: int, seconds: float, folder: Path
) -> dict[str, float]:
    # Signed anew each time: a signature grows old.
    requests = folder / "requests.json"
    requests.write_text(json.dumps([side.request(row).decode("latin-1") for row in rows]))
    generator = [sys.executable, str(HERE / "load.py")]
    where = [side.host, str(side.port), str(connections), str(seconds), str(requests)]
    finished = subprocess.run([*generator, *where], check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(finished.stdout)
    if result["failures"]:
        raise SystemExit(f"{side.name}: {result['failures']:.0f} answers were not 200.")
    return result


def render(results: Results, others: Others) -> str:
    """The medians as a Markdown table."""
    names = list(dict.fromkeys(name for name, _ in results))
    first = names[0]
    lines = [f"# Throughput, {datetime.date.today().isoformat()}", ""]
    lines += [*describe_machine(), others.describe(), ""]
    for connections in CONNECTIONS:
        ours = middle(results[first, connections], "requests_per_second")
        lines += [
            f"## {connections} connection{'s' if connections > 1 else ''}",
            "",
            f"| side | requests/s | p50 ms | p90 ms | p99 ms | {first.split()[0]} is |",
            "|---|---|---|---|---|---|",
        ]
        for name in names:
            measured = results[name, connections]
            rate, *waits = (
                middle(measured, key)
                for key in ("requests_per_second", "p50_ms", "p90_ms", "p99_ms")
            )
            lines.append(
                row_of([name, f"{rate:,.0f}", *(f"{ms:.2f}" for ms in waits), times(ours / rate)])
            )
        lines.append("")
    return "\n".join(lines)


def row_of(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def times(ratio: float) -> str:
    return "" if ratio == 1 else f"{ratio:.1f} times as fast"


def middle(measured: Sequence[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in measured)


if __name__ == "__main__":
    main()
