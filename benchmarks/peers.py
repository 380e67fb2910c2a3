"""Sagehen next to the other servers of models: one XGBoost model, one row a request, in one run.

    python3 benchmarks/peers.py [--seconds 5] [--repeats 3] [--only NAME,...] [--cache DIR] [--save]

Each peer runs in an environment of its own, which pip makes on the first run in --cache. One
server runs at a time: each is started, answers every row as the model does, is measured at 1, 8
and 64 connections and ends, and so on in turns, `repeats` times. The table gives the medians; the
lines below it say what the project aims at. A peer that cannot be had is named with the reason.
"""

import argparse
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from contenders import CONTENDERS, KEYS, Contender
from descendants import adopt_orphans, end_all, resident_mebibytes
from environments import CACHE, version_of
from frame import Measured, generator, heading, keep, measure, options, put_under_load, row_of, some
from house import Question, ask_library, check, make_model
from machine import describe_machine
from other_load import OtherLoad
from peer_results import BARE, SAGEHEN, Result, targets
from sides import Failed, Side, container_of

CONNECTIONS = (1, 8, 64)


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        question = make_model(Path(folder))
        bench = Bench(question, arguments.seconds, arguments.cache, other_load)
        results = bench.measure_all(arguments.only, arguments.repeats)
    report = render(results, other_load)
    print(report)
    if arguments.save:
        keep(report, "peers")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=5, choice_of_generator=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=some(KEYS), default=KEYS, help=f"some of {','.join(KEYS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    return parser.parse_args()


@dataclass(frozen=True)
class Bench:
    """The parts that every measurement needs."""

    question: Question
    seconds: float
    cache: Path
    other_load: OtherLoad

    def measure_all(self, keys: Sequence[str], repeats: int) -> list[Result]:
        library = Result(BARE, "XGBoost's own call, without a server")
        container = Result(BARE, "Sagehen's container, called directly")
        chosen = {
            contender: Result(contender.key, contender.name, contender.mode)
            for contender in CONTENDERS
            if contender.key in keys
        }
        for repeat in range(repeats):
            print(f"{repeat + 1}/{repeats}", file=sys.stderr)
            call = partial(ask_library, self.question, self.seconds)
            library.add({1: self.other_load.undisturbed(call)})
            for contender, result in chosen.items():
                if not result.failure:
                    self.measure(contender, result, container)
        return [library, container, *chosen.values()]

    def measure(self, contender: Contender, result: Result, container: Result) -> None:
        """Into the results; the container's are those of Sagehen's own."""
        try:
            with self.started(contender) as side:
                # Once more than each measurement is: a JVM compiles what it has run for a while.
                put_under_load(side, self.question.rows, CONNECTIONS[1], self.seconds)
                result.add(self.under_load(side, CONNECTIONS), resident_mebibytes())
                if contender.key == SAGEHEN:
                    container.add(self.under_load(container_of(side), (1,)))
            version = version_of(contender.package, contender.key, self.cache)
            result.version = f"{contender.package} {version}"
        except Failed as failure:
            result.failure = str(failure)
            print(f"{contender.name}: {failure}", file=sys.stderr)

    @contextmanager
    def started(self, contender: Contender) -> Iterator[Side]:
        """The server, which answers as the model does; nothing of it is left afterwards."""
        # What it wrote last may come while the folder is removed.
        with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
            try:
                with contender.start(self.question.model, Path(folder), self.cache) as side:
                    check(side, self.question.rows, self.question.expected)
                    yield replace(side, name=contender.name)
            finally:
                end_all()

    def under_load(self, side: Side, counts: Sequence[int]) -> dict[int, Measured]:
        """A measurement by number of connections."""
        measured = {}
        for connections in counts:
            once = measure(side, self.question.rows, connections, self.seconds, self.other_load)
            measured[connections] = once
            print(
                f"  {side.name:42} {connections:2} connections  "
                f"{once['requests_per_second']:8.0f}/s",
                file=sys.stderr,
            )
        return measured


def render(results: Sequence[Result], other_load: OtherLoad) -> str:
    """The medians as Markdown tables, and what they say of the targets."""
    servers = [result for result in results if result.key != BARE and result.measured]
    at_one = [result for result in results if result.key in (BARE, SAGEHEN) and result.measured]
    failed = [result for result in results if result.failure]
    columns = "".join(f" {count}: req/s | p50 | p99 |" for count in CONNECTIONS)
    return "\n".join(
        [
            *heading("Sagehen and its peers"),
            *describe_machine(),
            generator(),
            other_load.describe(),
            "",
            "Latencies in milliseconds; memory in MiB, resident, summed over the processes.",
            "",
            f"| server | version | memory |{columns}",
            f"|{'---|' * (3 + 3 * len(CONNECTIONS))}",
            *(row_of([server.name, server.version, *cells(server)]) for server in servers),
            "",
            "## One call at a time",
            "",
            "| call | p50 | p99 |",
            "|---|---|---|",
            *(row_of([result.name, *latencies(result, 1)]) for result in at_one),
            "",
            "## Targets",
            "",
            *targets(results),
            *(f"- {result.name} failed: {result.failure}" for result in failed),
            "",
        ]
    )


def cells(result: Result) -> Iterator[str]:
    yield f"{statistics.median(result.mebibytes):.0f}"
    for connections in CONNECTIONS:
        yield f"{result.rate(connections):,.0f}"
        yield from latencies(result, connections)


def latencies(result: Result, connections: int) -> list[str]:
    return [f"{result.middle(connections, key):.2f}" for key in ("p50_ms", "p99_ms")]


if __name__ == "__main__":
    main()
