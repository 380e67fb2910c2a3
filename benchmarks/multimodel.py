"""Many small XGBoost models on one endpoint: cold and warm calls, memory, hits; next to peers.

    python3 benchmarks/multimodel.py [--models 1000] [--peer-models 100] [--on-disk 10000]
                                     [--seconds 5] [--repeats 3] [--only NAME,...] [--save]

A cold call is a model's first, with all it takes to have it loaded; of the peers, the order to load
it and the first call. Every answer to it is compared with the library's own. Warm calls go to random
models over 8 connections. The servers run one at a time and take turns. Then, of Sagehen alone: how
often a call finds its model loaded when a quarter fit, and what 10,000 models do to warm calls.
"""

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import multi_servers
import numpy as np
from descendants import adopt_orphans, end_all, proportional_mebibytes
from environments import CACHE, version_of
from frame import Measured, heading, keep, measure, options, row_of
from house import ask
from machine import describe_machine
from many_models import Catalog, least_recent_hits, make_catalog, uniform, zipf
from multi_servers import Host, endpoint_name
from others import Others
from peer_results import verdict
from sides import Failed, Server

CONNECTIONS = 8
ROOM_SHARE = 4
"""A bounded endpoint has room for one model in so many."""
DRAWS_PER_MODEL = 4
QUESTIONS = 4000
"""Different ones that warm calls are made of."""
WARM_P90_MS = 2.0
COLD_P90_MS = 60.0
KIBIBYTES_A_MODEL = 150
SLOWER_AT_MOST = 1.1
"""Warm calls beside ten times the models, as it varies from one measurement to the next."""
SEED = 5

Start = Callable[[Catalog, int, Path], AbstractContextManager[tuple[Host, Any]]]


@dataclass
class Result:
    """What was measured of one server."""

    key: str
    name: str
    models: int
    version: str = ""
    cold_ms: list[float] = field(default_factory=list)
    warm: list[Measured] = field(default_factory=list)
    kibibytes: list[float] = field(default_factory=list)
    """That a model adds to all processes together."""
    failure: str = ""

    def cold(self, share: float) -> float:
        ordered = sorted(self.cold_ms)
        return ordered[int((len(ordered) - 1) * share)]

    def middle(self, key: str) -> float:
        return statistics.median(one[key] for one in self.warm)


@dataclass(frozen=True)
class Hits:
    """How often models were found loaded when they did not all fit."""

    asked: str
    share: float
    ideal: float
    """Of a cache that forgets the least recently used, of the same size."""


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
        Others(ignored=arguments.at_once),
    )
    results = bench.measure_all(arguments)
    hits = bench.measure_hits(arguments.models) if "sagehen" in arguments.only else []
    more = bench.measure_more(arguments) if "sagehen" in arguments.only else []
    report = render(results, hits, more, bench.others)
    print(report)
    if arguments.save:
        keep(report, "multimodel")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=5)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--peer-models", type=int, default=100, help="that a peer has to hold")
    parser.add_argument("--on-disk", type=int, default=10_000, help="in the last measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=some, default=KEYS, help=f"some of {','.join(KEYS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the peers' environments")
    return parser.parse_args()


def some(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(KEYS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: unknown")
    return text.split(",")


@dataclass(frozen=True)
class Bench:
    """What every measurement needs."""

    catalog: Catalog
    seconds: float
    cache: Path
    others: Others

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
        empty = proportional_mebibytes()
        result.cold_ms += self.cold_calls(host, result.models)
        grown = proportional_mebibytes() - empty
        result.kibibytes.append(grown * 1024 / result.models)
        result.warm.append(self.warm_calls(host, uniform(result.models, QUESTIONS)))
        print(
            f"  {result.name:45} cold {result.cold(0.5):6.1f} ms  warm "
            f"{result.warm[-1]['p90_ms']:5.2f} ms",
            file=sys.stderr,
        )

    def cold_calls(self, host: Host, models: int) -> list[float]:
        """Milliseconds, of each model in some order."""
        order = list(range(models))
        random.Random(SEED).shuffle(order)
        taken = []
        for number in order:
            question = self.catalog.question(number)
            start = time.perf_counter()
            host.load(number)
            answer = ask(host.side, question)
            taken.append((time.perf_counter() - start) * 1000)
            if np.float32(answer) != self.catalog.expects(number):
                raise Failed(f"{host.side.name}: model {number} answers {answer}.")
        return taken

    def warm_calls(self, host: Host, draws: Sequence[int]) -> Measured:
        questions = [self.catalog.question(number) for number in draws]
        return measure(host.side, questions, CONNECTIONS, self.seconds, self.others)

    def measure_hits(self, models: int) -> list[Hits]:
        """With room for a part of the models, each draw asked for once, one after the other."""
        booked = [max(len(self.catalog.model(number)), 2**16) for number in range(models)]
        room = models // ROOM_SHARE
        found = []
        with (
            tempfile.TemporaryDirectory(prefix="sgh-") as folder,
            self.uploaded(models, Path(folder)) as (_, running),
        ):
            for place, (name, draw) in enumerate((("uniform", uniform), ("Zipf", zipf))):
                # Two endpoints must differ by name, and so by room.
                room_bytes = int(statistics.mean(booked) * room) + place
                host = multi_servers.deploy(running, models, room_bytes)
                draws = draw(models, DRAWS_PER_MODEL * models)
                for number in draws:
                    ask(host.side, self.catalog.question(number))
                share = told_hits(running, endpoint_name(models, room_bytes), len(draws))
                found.append(Hits(name, share, least_recent_hits(draws, room)))
        return found

    def measure_more(self, arguments: argparse.Namespace) -> list[tuple[str, Measured]]:
        """Warm calls beside many more models, and to all of them."""
        models = arguments.on_disk
        with (
            tempfile.TemporaryDirectory(prefix="sgh-") as folder,
            self.uploaded(models, Path(folder)) as (host, _),
        ):
            few = uniform(arguments.models, QUESTIONS)
            self.cold_calls(host, arguments.models)
            before = self.warm_calls(host, few)
            self.cold_calls(host, models)
            beside = self.warm_calls(host, few)
            among = self.warm_calls(host, uniform(models, QUESTIONS))
        return [
            (f"{arguments.models:,} models, nothing beside", before),
            (f"{arguments.models:,} models, {models:,} loaded and on disk", beside),
            (f"{models:,} models", among),
        ]

    def uploaded(self, models: int, folder: Path) -> AbstractContextManager[tuple[Host, Server]]:
        return multi_servers.sagehen(self.catalog, models, folder)


PACKAGES = {
    "sagehen": ("sagehen", "sagehen"),
    "mms": ("multi-model-server", "mms"),
    "mlserver": ("mlserver-xgboost", "mlserver_xgboost"),
}
"""What the version is of, and the environment that it is in."""


def told_hits(running: Server, endpoint: str, asked: int) -> float:
    """ModelCacheHit's average, once all that was asked has been told."""
    for _ in range(100):
        with urllib.request.urlopen(f"{running.url}/_sagehen/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        told = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if f'endpoint="{endpoint}"' in line
        }
        if told.get("sagehen_model_cache_lookups_total") == asked:
            return told["sagehen_model_cache_hits_total"] / asked
        time.sleep(0.1)
    raise Failed(f"{endpoint}: not all of {asked} calls were counted.")


def render(
    results: Sequence[Result],
    hits: Sequence[Hits],
    more: Sequence[tuple[str, Measured]],
    others: Others,
) -> str:
    measured = [result for result in results if result.warm]
    titles = (
        "server | version | models | cold p50 | p90 | warm req/s | p50 | p90 | p99 | KiB a model"
    )
    lines = [
        *heading("Many models behind one endpoint"),
        *describe_machine(),
        others.describe(),
        "- XGBoost models of 10, 25, 50 and 100 trees, one archive each of 4 to 34 KB.",
        "",
        f"Milliseconds; warm calls to random models over {CONNECTIONS} connections; memory is what a "
        "model adds to all processes of the server, pages that they share counted once.",
        "",
        f"| {titles} |",
        f"|{'---|' * 10}",
        *(row_of([one.name, one.version, *cells(one)]) for one in measured),
        *(
            f"| {one.name} | not measured: {one.failure} |{' |' * 8}"
            for one in results
            if one.failure
        ),
    ]
    if hits:
        lines += hits_table(hits)
    if more:
        lines += more_table(more)
    return "\n".join([*lines, "", "## Targets", "", *targets(measured, more), ""])


def cells(result: Result) -> list[str]:
    return [
        f"{result.models:,}",
        *(f"{result.cold(share):.1f}" for share in (0.5, 0.9)),
        f"{result.middle('requests_per_second'):,.0f}",
        *(f"{result.middle(key):.2f}" for key in ("p50_ms", "p90_ms", "p99_ms")),
        f"{statistics.median(result.kibibytes):,.0f}",
    ]


def hits_table(hits: Sequence[Hits]) -> list[str]:
    return [
        "",
        f"## Hits with room for one model in {ROOM_SHARE}",
        "",
        "| models asked for | found loaded | an ideal cache of that size, least recently used |",
        "|---|---|---|",
        *(row_of([one.asked, f"{one.share:.1%}", f"{one.ideal:.1%}"]) for one in hits),
    ]


def more_table(more: Sequence[tuple[str, Measured]]) -> list[str]:
    keys = ("p50_ms", "p90_ms", "p99_ms")
    return [
        "",
        "## Many more models",
        "",
        "| warm calls to | req/s | p50 | p90 | p99 |",
        "|---|---|---|---|---|",
        *(
            row_of(
                [name, f"{one['requests_per_second']:,.0f}", *(f"{one[key]:.2f}" for key in keys)]
            )
            for name, one in more
        ),
    ]


def targets(results: Sequence[Result], more: Sequence[tuple[str, Measured]]) -> list[str]:
    """A line of Markdown for each that the run can tell something about."""
    ours = next((result for result in results if result.key == "sagehen"), None)
    if ours is None:
        return ["- Sagehen was not measured."]
    warm, cold = ours.middle("p90_ms"), ours.cold(0.9)
    memory = statistics.median(ours.kibibytes)
    lines = [
        verdict(warm < WARM_P90_MS, f"warm p90 below {WARM_P90_MS:g} ms: {warm:.2f} ms"),
        verdict(cold < COLD_P90_MS, f"cold p90 below {COLD_P90_MS:g} ms: {cold:.1f} ms"),
        verdict(
            memory <= KIBIBYTES_A_MODEL,
            f"at most {KIBIBYTES_A_MODEL} KiB a model: {memory:.0f} KiB",
        ),
    ]
    if more:
        few, many = (more[place][1]["p90_ms"] for place in (0, 1))
        lines.append(
            verdict(
                many <= few * SLOWER_AT_MOST,
                f"warm calls no slower beside more models: p90 {few:.2f} ms, then {many:.2f} ms",
            )
        )
    return lines


if __name__ == "__main__":
    main()
