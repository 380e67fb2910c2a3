"""Measures the gain by batching: several models with it on and off, beside two peers with it on.

    python3 benchmarks/batching.py [--seconds 5] [--repeats 3] [--connections 1,8,64,256]
        [--models xgboost,sklearn,onnx,huggingface] [--only sagehen,…] [--cache DIR] [--save]

One server runs at a time: each is started, answers every question as the model itself does, is
measured at each number of connections and ends, and so on in turns, `repeats` times. The tables
give the medians. A peer gets an environment of its own for each model, made by pip in --cache; what
cannot be had is named with the reason.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from batching_models import KINDS, Kind, StoredModel
from batching_sides import CONTESTANTS, KEYS, Contestant
from descendants import adopt_orphans, end_all, resident_mebibytes
from environments import CACHE
from frame import heading, keep, measure, middle, numbers, options, row_of, some
from house import ask
from machine import describe_machine
from other_load import OtherLoad
from peer_results import Result
from sides import Failed, Side

CONNECTIONS = (1, 8, 64, 256)
MODELS = tuple(kind.key for kind in KINDS)


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    other_load = OtherLoad(ignored=arguments.at_once)
    bench = Bench(arguments.seconds, arguments.connections, arguments.cache, other_load)
    report = [*heading("Batching"), *describe_machine()]
    tables = [
        line
        for kind in KINDS
        if kind.key in arguments.models
        for line in table_of(kind, bench, arguments.only, arguments.repeats)
    ]
    text = "\n".join([*report, other_load.describe(), "", *tables])
    print(text)
    if arguments.save:
        keep(text, "batching")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--connections", type=numbers, default=CONNECTIONS)
    parser.add_argument("--models", type=some(MODELS), default=MODELS, help=", ".join(MODELS))
    parser.add_argument("--only", type=some(KEYS), default=KEYS, help=f"some of {', '.join(KEYS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    return parser.parse_args()


@dataclass(frozen=True)
class Bench:
    """The parts that every measurement needs."""

    seconds: float
    connections: Sequence[int]
    cache: Path
    other_load: OtherLoad

    def measure(
        self, contestant: Contestant, kind: Kind, stored: StoredModel, result: Result
    ) -> None:
        """Once, into the result."""
        try:
            # What it wrote last may come while the folder is removed.
            with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
                try:
                    start = contestant.start(kind, stored, Path(folder), self.cache)
                    with start as side:
                        named = replace(side, name=f"{kind.key}, {contestant.name}")
                        check(named, kind, stored)
                        self.under_load(named, stored, result)
                finally:
                    end_all()
        except Failed as failure:
            result.failure = str(failure)
            print(f"{contestant.name}: {failure}", file=sys.stderr)

    def under_load(self, side: Side, stored: StoredModel, result: Result) -> None:
        measured = {}
        for connections in self.connections:
            once = measure(side, stored.questions, connections, self.seconds, self.other_load)
            measured[connections] = once
            print(
                f"  {side.name:50} {connections:3} connections  "
                f"{once['requests_per_second']:8.0f}/s",
                file=sys.stderr,
            )
        result.add(measured, resident_mebibytes())


def check(side: Side, kind: Kind, stored: StoredModel) -> None:
    """The side answers every question as the model does."""
    for question, expected in zip(stored.questions, stored.expected, strict=True):
        number = ask(side, question)
        if not np.isclose(number, expected, rtol=kind.tolerance, atol=kind.tolerance):
            raise Failed(f"{side.name} answers {number}, the model says {expected}.")


def table_of(kind: Kind, bench: Bench, keys: Sequence[str], repeats: int) -> list[str]:
    """The medians of one model, as Markdown."""
    title = [f"## {kind.name}", ""]
    if kind.missing:
        return [*title, f"Not measured: {', '.join(kind.missing)} cannot be imported.", ""]
    chosen = {
        contestant: Result(contestant.key, contestant.name)
        for contestant in CONTESTANTS
        if contestant.key in keys
    }
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        stored = kind.make(Path(folder))
        for repeat in range(repeats):
            print(f"{kind.name}, {repeat + 1}/{repeats}", file=sys.stderr)
            for contestant, result in chosen.items():
                if not result.failure:
                    bench.measure(contestant, kind, stored, result)
    columns = "".join(f" {count}: req/s | p50 ms | p99 ms |" for count in bench.connections)
    return [
        *title,
        f"| server |{columns}",
        f"|{'---|' * (1 + 3 * len(bench.connections))}",
        *(
            row_of([entry.name, *cells(entry, bench)])
            for entry in chosen.values()
            if entry.measured
        ),
        "",
        *(f"- {entry.name} failed: {entry.failure}" for entry in chosen.values() if entry.failure),
        "",
    ]


def cells(result: Result, bench: Bench) -> list[str]:
    columns = []
    for connections in bench.connections:
        measured = result.measured[connections]
        columns.append(f"{middle(measured, 'requests_per_second'):,.0f}")
        columns += [f"{middle(measured, key):.2f}" for key in ("p50_ms", "p99_ms")]
    return columns


if __name__ == "__main__":
    main()
