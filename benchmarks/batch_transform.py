"""Batch transform: rows of CSV through an XGBoost model, next to loops and other frameworks.

    python3 benchmarks/batch_transform.py [--parts rows,strategies,large,objects] [--rows 1000000]
        [--only NAME,...] [--repeats 3] [--gigabytes 4] [--objects 1000,10000] [--save]

Rows: one object, with one instance and with two, next to loops in one process over the same file,
and to Ray Data, Dask and Spark; in turns. Strategies: MultiRecord next to SingleRecord. Large: one
object on four instances: memory as it goes by, and what each instance did. Objects: what an object
of ten rows costs, as there are more of them: 100,000 take a quarter of an hour.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from descendants import adopt_orphans, end_all
from environments import CACHE, version_of
from frame import keep, numbers, some
from house import Question, make_model
from other_load import OtherLoad
from sides import Failed, Server
from transform_jobs import (
    BUCKET,
    Times,
    check_predictions,
    expected_of,
    make_rows,
    output_of,
    put_repeated,
    run_job,
    server_with_model,
)
from transform_peers import CONTESTANTS, Contestant, run_contestant
from transform_report import Large, ObjectsCost, Run, StrategyRun, render
from transform_watch import Watch, processor_seconds


class Setup(NamedTuple):
    name: str
    instances: int
    environment: Mapping[str, str] = {}
    """of the job"""


PARTS = ("rows", "strategies", "large", "objects")
SAGEHEN = {
    "sagehen-1-thread": Setup("Sagehen, 1 instance, 1 thread", 1, {"OMP_NUM_THREADS": "1"}),
    "sagehen": Setup("Sagehen, 1 instance", 1),
    "sagehen-2": Setup("Sagehen, 2 instances", 2),
}
KEYS = (*SAGEHEN, *(contestant.key for contestant in CONTESTANTS))
STRATEGY_ROWS = {"MultiRecord": 200_000, "SingleRecord": 20_000}
LARGE_INSTANCES = 4
ROWS_OF_AN_OBJECT = 10
PUTTERS = 4


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    other_load = OtherLoad(ignored=arguments.at_once)
    with empty_folder() as folder:
        question = make_model(folder)
        with server_with_model(question, folder) as running:
            bench = Bench(question, running, folder, arguments.cache, other_load)
            report = measure(bench, arguments)
    print(report)
    if arguments.save:
        keep(report, "batch-transform")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", type=some(PARTS), default=PARTS[:2], help=f"some of {PARTS}")
    parser.add_argument("--only", type=some(KEYS), default=KEYS, help=f"some of {','.join(KEYS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of the large object")
    parser.add_argument("--objects", type=numbers, default=[1000, 10_000], metavar="1000,10000")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    parser.add_argument("--at-once", action="store_true", help="whatever else the machine does")
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    return parser.parse_args()


def measure(bench: "Bench", arguments: argparse.Namespace) -> str:
    runs: list[Run] = []
    strategies: list[StrategyRun] = []
    costs: list[ObjectsCost] = []
    large = None
    if "rows" in arguments.parts:
        runs = bench.measure_rows(arguments.only, arguments.rows, arguments.repeats)
    if "strategies" in arguments.parts:
        strategies = bench.measure_strategies()
    if "large" in arguments.parts:
        large = bench.measure_large(arguments.gigabytes)
    if "objects" in arguments.parts:
        costs = bench.measure_objects(arguments.objects)
    return render(runs, arguments.rows, strategies, large, costs, bench.other_load)


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Nothing that was started in it is left afterwards."""
    # What it wrote last may come while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            end_all()


@dataclass(frozen=True)
class Bench:
    """The parts that every measurement needs."""

    question: Question
    running: Server
    folder: Path
    cache: Path
    other_load: OtherLoad
    numbers: Iterator[int] = field(default_factory=count)
    """of jobs"""

    def measure_rows(self, keys: Sequence[str], rows: int, repeats: int) -> list[Run]:
        text = make_rows(rows)
        expected = expected_of(self.question, text)
        source = self.folder / "rows.csv"
        source.write_bytes(text)
        self.put("rows/rows.csv", text)
        chosen = [contestant for contestant in CONTESTANTS if contestant.key in keys]
        runs = {key: Run(key, setup.name) for key, setup in SAGEHEN.items() if key in keys}
        runs |= {each.key: Run(each.key, each.name, each.rival) for each in chosen}

        def sagehen(key: str) -> Times:
            name = self.next_name()
            before = processor_seconds(self.running.pid)
            setup = SAGEHEN[key]
            environment = dict(setup.environment)
            times = run_job(self.running, name, "rows/", setup.instances, Environment=environment)
            runs[key].processor_seconds.append(processor_seconds(self.running.pid) - before)
            check_predictions(name, output_of(self.running, name, "rows.csv"), expected)
            return times

        def other(contestant: Contestant) -> Times:
            times, output = run_contestant(
                contestant, self.question.model, source, self.folder, self.cache
            )
            check_predictions(contestant.name, output, expected, exact=contestant.is_exact)
            return times

        for repeat in range(repeats):
            print(f"{repeat + 1}/{repeats}", file=sys.stderr)
            for key in SAGEHEN:
                if key in runs:
                    self.add(runs[key], partial(sagehen, key))
            for contestant in chosen:
                self.add(runs[contestant.key], partial(other, contestant))
        for contestant in chosen:
            if runs[contestant.key].times:
                version = version_of(contestant.package, contestant.peer, self.cache)
                runs[contestant.key].version = f"{contestant.package} {version}"
        return list(runs.values())

    def add(self, run: Run, once: "partial[Times]") -> None:
        """Measures once more, unless that has failed."""
        if run.failure:
            return
        try:
            times = self.other_load.undisturbed(once)
        except Failed as failure:
            run.failure = str(failure)
            print(f"  {run.name}: {failure}", file=sys.stderr)
            return
        run.times.append(times)
        print(
            f"  {run.name:40} work {times.work:6.2f} s, whole {times.whole:6.2f} s", file=sys.stderr
        )

    def measure_strategies(self) -> list[StrategyRun]:
        results = []
        for strategy, rows in STRATEGY_ROWS.items():
            text = make_rows(rows)
            self.put(f"{strategy}/rows.csv", text)
            name = self.next_name()
            job = partial(run_job, self.running, name, f"{strategy}/", strategy=strategy)
            if strategy == "SingleRecord":
                job = partial(job, MaxConcurrentTransforms=64, MaxPayloadInMB=1)
            times = self.other_load.undisturbed(job)
            output = output_of(self.running, name, "rows.csv")
            check_predictions(name, output, expected_of(self.question, text))
            results.append(StrategyRun(strategy, rows, times))
            print(f"  {strategy}: {rows / times.work:,.0f} rows/s", file=sys.stderr)
        return results

    def measure_large(self, gigabytes: float) -> Large:
        block = make_rows(100_000)
        blocks = put_repeated(self.running, "large/rows.csv", block, int(gigabytes * 1e9))
        name = self.next_name()
        with Watch(self.running.pid) as watch:
            times = run_job(self.running, name, "large/", LARGE_INSTANCES)
        self.check_size(name, "rows.csv", block, blocks)
        return Large(blocks * len(block), blocks * 100_000, LARGE_INSTANCES, times, watch)

    def check_size(self, name: str, key: str, block: bytes, blocks: int) -> None:
        """The output has the predictions of one block, again and again."""
        s3 = self.running.client("s3")
        expected = expected_of(self.question, block)
        one = "".join(f"{number!r}\n" for number in expected.tolist()).encode()
        body = s3.get_object(Bucket=BUCKET, Key=f"{name}/{key}.out")["Body"]
        for _ in range(blocks):
            if body.read(len(one)) != one:
                raise Failed(f"{name}: the output is not the model's.")
        if body.read(1):
            raise Failed(f"{name}: the output is too long.")

    def measure_objects(self, counts: Sequence[int]) -> list[ObjectsCost]:
        """The cost of the job itself, with one object, comes first."""
        text = make_rows(ROWS_OF_AN_OBJECT)
        costs = []
        for objects in (1, *counts):
            prefix = f"objects-{objects}"
            keys = [f"{prefix}/{number:06}.csv" for number in range(objects)]
            with ThreadPoolExecutor(PUTTERS) as pool:
                list(pool.map(lambda key: self.put(key, text), keys))
            name = self.next_name()
            before = processor_seconds(self.running.pid)
            with Watch(self.running.pid) as watch:
                times = run_job(self.running, name, f"{prefix}/")
            used = processor_seconds(self.running.pid) - before
            costs.append(ObjectsCost(objects, times, used, watch))
            print(f"  {objects} objects: {times.work:.1f} s", file=sys.stderr)
        return costs

    def put(self, key: str, content: bytes) -> None:
        self.running.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)

    def next_name(self) -> str:
        return f"job-{next(self.numbers)}"


if __name__ == "__main__":
    main()
