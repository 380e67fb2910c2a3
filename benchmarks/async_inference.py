"""Asynchronous endpoints: requests put in, brought through, and kept, next to other task queues.

    python3 benchmarks/async_inference.py [--parts enqueue,through,backlog] [--only NAME,...]
        [--seconds 3] [--repeats 2] [--levels 1000,100000,1000000] [--cache DIR] [--save]

A request is a text of 100 bytes, its answer the same. Put in: how many a second are on disk and
acknowledged, at 1, 8 and 64 connections, while nobody takes them out. Through: from the first put
in to when the result of the last can be read. Of Sagehen alone: what its steps cost, and what disk
and memory it takes, as the queue grows. The queues run one at a time and take turns.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import async_backlog
from async_peers import Contestant, Running
from async_report import CONNECTIONS, Queue, render
from async_sides import CONTESTANTS, KEYS
from descendants import adopt_orphans, end_all
from environments import CACHE, version_of
from frame import WARM_UP_SHARE, keep, numbers, options, some
from other_load import OtherLoad
from sides import Failed

PARTS = ("enqueue", "through", "backlog")
FIRST_THROUGH = 128
"""Requests of the warm-up, which tells how many make a measurement of about the wanted time."""
MAX_THROUGH = 20_000


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    bench = Bench(arguments.seconds, arguments.cache, OtherLoad(ignored=arguments.at_once))
    queues = bench.measure_all(arguments.only, arguments.parts, arguments.repeats)
    levels = []
    if "backlog" in arguments.parts:
        levels = async_backlog.measure(arguments.levels, arguments.seconds, bench.other_load)
    report = render(queues, levels, bench.other_load)
    print(report)
    if arguments.save:
        keep(report, "async-inference")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--parts", type=some(PARTS), default=PARTS, help=f"some of {PARTS}")
    parser.add_argument("--only", type=some(KEYS), default=KEYS, help=f"some of {','.join(KEYS)}")
    parser.add_argument("--levels", type=numbers, default=[1000, 100_000, 1_000_000])
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    return parser.parse_args()


@dataclass(frozen=True)
class Bench:
    """The parts that every measurement needs."""

    seconds: float
    cache: Path
    other_load: OtherLoad

    def measure_all(self, keys: Sequence[str], parts: Sequence[str], repeats: int) -> list[Queue]:
        chosen = {
            contestant: Queue(contestant.key, contestant.name, durable=contestant.durable)
            for contestant in CONTESTANTS
            if contestant.key in keys
        }
        for repeat in range(repeats):
            print(f"{repeat + 1}/{repeats}", file=sys.stderr)
            for contestant, queue in chosen.items():
                if not queue.failure:
                    self.measure(contestant, queue, parts)
        return list(chosen.values())

    def measure(self, contestant: Contestant, queue: Queue, parts: Sequence[str]) -> None:
        """Measures once and adds the results to `queue`."""
        try:
            if "enqueue" in parts or "through" in parts:
                with empty_folder() as folder, contestant.start(folder, self.cache) as running:
                    if "through" in parts:
                        self.measure_through(running, queue)
                    if "enqueue" in parts:
                        self.measure_enqueue(running, queue)
            version = version_of(contestant.package, contestant.environment, self.cache)
            queue.version = f"{contestant.package} {version}"
        except Failed as failure:
            queue.failure = str(failure)
            print(f"{contestant.name}: {failure}", file=sys.stderr)

    def measure_enqueue(self, running: Running, queue: Queue) -> None:
        with running.resting() as enqueue:
            for connections in CONNECTIONS:
                enqueue(connections, WARM_UP_SHARE * self.seconds)
                once = self.other_load.undisturbed(partial(enqueue, connections, self.seconds))
                queue.add({connections: once})
                describe_progress(queue, f"{connections:2} connections", once)

    def measure_through(self, running: Running, queue: Queue) -> None:
        with running.working() as ways:
            for input_kind, through in ways.items():
                rate = through(FIRST_THROUGH)["requests_per_second"]
                count = max(FIRST_THROUGH, min(MAX_THROUGH, int(rate * self.seconds)))
                once = self.other_load.undisturbed(partial(through, count))
                queue.through.setdefault(input_kind, []).append(once["requests_per_second"])
                describe_progress(queue, input_kind or "through", once)


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Nothing that was started in it is left afterwards."""
    # What it wrote last may come while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            end_all()


def describe_progress(queue: Queue, title: str, once: dict[str, float]) -> None:
    rate = once["requests_per_second"]
    print(f"  {queue.name:66} {title:15} {rate:8.0f}/s", file=sys.stderr)


if __name__ == "__main__":
    main()
