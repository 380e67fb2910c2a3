"""Many small XGBoost models on one endpoint: cold and warm calls, memory, hits; next to peers.

    python3 benchmarks/multimodel.py [--models 1000] [--peer-models 100] [--on-disk 10000]
                                     [--seconds 5] [--repeats 3] [--only NAME,...] [--quick]
                                     [--save]

A cold call is a model's first, with all it takes to have it loaded; of the peers, the order to load
it and the first call. Its answer is compared with the library's own. Warm calls go to random models
over 8 connections. The servers run one at a time and take turns. Then, of Sagehen alone: how
often a call finds its model loaded when a quarter fit, and what 10,000 models do to warm calls.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import multi_servers
import numpy as np
from descendants import adopt_orphans, end_all, proportional_mebibytes
from environments import CACHE, version_of
from frame import Measured, keep, measure, options, some
from house import ask
from ideal_cache import least_recent_hits
from many_models import Catalog, make_catalog, uniform, zipf
from multi_servers import Host, endpoint_name
from multimodel_report import CONNECTIONS, ROOM_SHARE, Hits, Result, Warm, render
from other_load import OtherLoad
from sides import Failed, Server

DRAWS_PER_MODEL = 4
QUESTIONS = 4000
"""requests that warm calls repeat; fewer with few models"""
QUESTIONS_A_MODEL = 16
LEAST_BYTES = 64 * 1024
"""the least memory that Sagehen accounts to a model"""
SEED = 5

Draw = Callable[[int, int], list[int]]
Start = Callable[[Catalog, int, Path], AbstractContextManager[tuple[Host, Any]]]


KEYS = ("sagehen", "mms", "mlserver")


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    bench = Bench(
        make_catalog(arguments.models),
        arguments.seconds,
        arguments.cache,
        OtherLoad(ignored=arguments.at_once),
    )
    results = bench.measure_all(arguments)
    hits, more = [], []
    if "sagehen" in arguments.only and not arguments.quick:
        hits, more = bench.measure_more(arguments.models, arguments.on_disk)
    report = render(results, hits, more, bench.other_load)
    print(report)
    if arguments.save:
        keep(report, "multimodel")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=5)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--peer-models", type=int, default=100, help="that a peer has to hold")
    parser.add_argument("--on-disk", type=int, default=10_000, help="in the last measurement")
    parser.add_argument("--quick", action="store_true", help="without what is of Sagehen alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=some(KEYS), default=KEYS, help=f"some of {','.join(KEYS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    return parser.parse_args()


@dataclass(frozen=True)
class Bench:
    """The parts that every measurement needs."""

    catalog: Catalog
    seconds: float
    cache: Path
    other_load: OtherLoad

    def measure_all(self, arguments: argparse.Namespace) -> list[Result]:
        peers = arguments.peer_models
        starts: dict[str, tuple[Start, Result]] = {
            "sagehen": (
                multi_servers.sagehen,
                Result("sagehen", "Sagehen (signed, through the gateway)", arguments.models),
            ),
            "mms": (
                partial(multi_servers.multi_model_server, cache=self.cache),
                Result("mms", "multi-model-server (a process for each model)", peers),
            ),
            "mlserver": (
                partial(multi_servers.mlserver, cache=self.cache),
                Result("mlserver", "MLServer, its XGBoost runtime", peers),
            ),
        }
        chosen = [starts[key] for key in arguments.only]
        for repeat in range(arguments.repeats):
            print(f"{repeat + 1}/{arguments.repeats}", file=sys.stderr)
            for start, result in chosen:
                if not result.failure:
                    self.measure(start, result)
        return [result for _, result in chosen]

    def measure(self, start: Start, result: Result) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
                try:
                    with start(self.catalog, result.models, Path(folder)) as (host, _):
                        self.measure_host(host, result)
                finally:
                    end_all()
            package, key = PACKAGES[result.key]
            result.version = f"{package} {version_of(package, key, self.cache)}"
        except Failed as failure:
            result.failure = str(failure)
            print(f"{result.name}: {failure}", file=sys.stderr)

    def measure_host(self, host: Host, result: Result) -> None:
        order = list(range(result.models))
        random.Random(SEED).shuffle(order)
        # The first brings the libraries that all share.
        result.cold_ms += self.cold_calls(host, order[:1])
        before = proportional_mebibytes()
        result.cold_ms += self.cold_calls(host, order[1:])
        grown = proportional_mebibytes() - before
        result.kibibytes.append(grown * 1024 / (result.models - 1))
        result.warm.append(self.warm_calls(host, result.models))
        print(
            f"  {result.name:45} cold {result.cold(0.5):6.1f} ms  warm "
            f"{result.warm[-1]['p90_ms']:5.2f} ms",
            file=sys.stderr,
        )

    def cold_calls(self, host: Host, models: Sequence[int]) -> list[float]:
        """Milliseconds, of each of the models."""
        taken = []
        for number in models:
            question = self.catalog.question(number)
            start = time.perf_counter()
            host.load(number)
            answer = ask(host.side, question)
            taken.append((time.perf_counter() - start) * 1000)
            if np.float32(answer) != self.catalog.expects(number):
                raise Failed(f"{host.side.name}: model {number} answers {answer}.")
        return taken

    def warm_calls(self, host: Host, models: int) -> Measured:
        draws = uniform(models, min(QUESTIONS, QUESTIONS_A_MODEL * models))
        questions = [self.catalog.question(number) for number in draws]
        return measure(host.side, questions, CONNECTIONS, self.seconds, self.other_load)

    def measure_more(self, models: int, on_disk: int) -> tuple[list[Hits], list[Warm]]:
        """Measures Sagehen alone: with little memory, and with many more models."""
        with (
            tempfile.TemporaryDirectory(prefix="sgh-") as folder,
            multi_servers.sagehen(self.catalog, max(models, on_disk), Path(folder)) as started,
        ):
            host, running = started
            self.cold_calls(host, range(models))
            before = self.warm_calls(host, models)
            self.cold_calls(host, range(models, on_disk))
            beside = self.warm_calls(host, models)
            among = self.warm_calls(host, on_disk)
            hits = [
                self.measure_hits(running, models, index, name, draw)
                for index, (name, draw) in enumerate((("uniform", uniform), ("Zipf", zipf)))
            ]
        return hits, [
            (f"{models:,} models, nothing beside", before),
            (f"{models:,} models, {on_disk:,} loaded and on disk", beside),
            (f"{on_disk:,} models", among),
        ]

    def measure_hits(self, running: Server, models: int, index: int, name: str, draw: Draw) -> Hits:
        """Measures with memory for a part of the models; each draw is requested once, in turn."""
        booked = [max(len(self.catalog.model(number)), LEAST_BYTES) for number in range(models)]
        # Two endpoints must differ by name, and so by room.
        room_bytes = sum(booked) // ROOM_SHARE + index
        host = multi_servers.deploy(running, models, room_bytes)
        draws = draw(models, DRAWS_PER_MODEL * models)
        for number in draws:
            ask(host.side, self.catalog.question(number))
        share = reported_hits(running, endpoint_name(models, room_bytes), len(draws))
        return Hits(name, share, least_recent_hits(draws, booked, room_bytes))


PACKAGES = {
    "sagehen": ("sagehen", "sagehen"),
    "mms": ("multi-model-server", "mms"),
    "mlserver": ("mlserver-xgboost", "mlserver_xgboost"),
}
"""the package that shows each side's version, and its environment"""


def reported_hits(running: Server, endpoint: str, calls: int) -> float:
    """ModelCacheHit's average, once all that was asked has been told."""
    for _ in range(100):
        with urllib.request.urlopen(f"{running.url}/_sagehen/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        metrics = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if f'endpoint="{endpoint}"' in line
        }
        if metrics.get("sagehen_model_cache_lookups_total") == calls:
            return metrics["sagehen_model_cache_hits_total"] / calls
        time.sleep(0.1)
    raise Failed(f"{endpoint}: not all of {calls} calls were counted.")


if __name__ == "__main__":
    main()
