"""Ten minutes at 80 % of the peak while instances are killed at random: what is lost, what grows.

    python3 benchmarks/soak.py [--minutes 10] [--kills-per-minute 6] [--kill-gateways] [--save]

One endpoint of several instances of the XGBoost model of throughput.py, least outstanding requests
first. First the peak is measured, in a closed loop; then a share of it is offered in an open one
(paced.py), signed, over kept connections, and every answer is compared with the model's own. Every
few seconds a random instance that serves gets a SIGKILL, at times a gateway.

What a kill may cost are the requests that the killed process had begun, and they are told so: 424
ModelError from an instance, a lost connection from a gateway. Anything else that is not the right
answer is lost, and then the exit status is 1.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from house import check, make_model, post
from inside import Inside
from kills import Killer, unexplained
from other_load import OtherLoad, foreign_seconds
from sides import HERE, Server, Side, deploy, server
from soak_report import Memory, Soak, render

ROUTING = "LEAST_OUTSTANDING_REQUESTS"
SIGN_SECONDS = 240
"""Requests are signed anew so often: a signature is good for fifteen minutes."""
TICK_SECONDS = 0.02
MEMORY_SECONDS = 1.0
SETTLE_SECONDS = 60.0
"""after the last request, for all instances to return and all requests to end"""


def main() -> int:
    arguments = parse_arguments()
    settings = {"SAGEHEN_GATEWAYS": str(arguments.gateways)} if arguments.gateways else {}
    other_load = OtherLoad()
    with (
        tempfile.TemporaryDirectory(prefix="sgh-") as folder,
        server(Path(folder), **settings) as running,
    ):
        model, rows, expected = make_model(Path(folder))
        deploy(model, running, arguments.instances, ROUTING)
        side = side_of(running)
        check(side, rows, expected)
        offers = Offers(side, {row: post(side, row)[1] for row in rows}, Path(folder))
        peak = find_peak(offers, arguments, other_load)
        soak = put_under_load(Inside(running), offers, peak, arguments)
        check(side, rows, expected)
    report = render(soak, other_load)
    print(report)
    if arguments.save:
        saved = HERE / "results" / f"{datetime.date.today().isoformat()}-soak.md"
        saved.write_text(report)
    return 0 if soak.is_sound else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--share", type=float, default=0.8, help="of the peak, to be offered")
    parser.add_argument("--peak-seconds", type=float, default=5, help="to measure the peak for")
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--gateways", type=int, help="default: as many as the server has")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--kills-per-minute", type=float, default=6)
    parser.add_argument("--kill-gateways", action="store_true", help="some of the kills hit one")
    parser.add_argument("--seed", type=int, default=2026, help="of the kills")
    parser.add_argument(
        "--at-once", action="store_true", help="whatever else the machine does: to try it out"
    )
    parser.add_argument("--save", action="store_true", help="keep the report in results/")
    return parser.parse_args()


def side_of(running: Server) -> Side:
    host, port = running.address
    return Side("Sagehen", host, port, partial(running.signed_request, "house"))


# The load


@dataclass(frozen=True)
class Offers:
    """Requests with the answers that are right, and the generator that sends them."""

    side: Side
    answers: dict[str, str]
    """By row."""
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "offers.json"

    def sign(self) -> None:
        """Make the generator's file, or replace it."""
        pairs = [
            (self.side.request(row).decode("latin-1"), answer)
            for row, answer in self.answers.items()
        ]
        draft = self.folder / "offers.new"
        draft.write_text(json.dumps(pairs))
        draft.replace(self.file)

    def start(self, connections: int, rate: float, seconds: float) -> subprocess.Popen[bytes]:
        """A generator that works by itself; `result_of` waits for it."""
        self.sign()
        where = [self.side.host, str(self.side.port), str(connections), str(rate), str(seconds)]
        with self._result.open("wb") as result:
            return subprocess.Popen(
                [sys.executable, str(HERE / "paced.py"), *where, str(self.file)], stdout=result
            )

    def result_of(self, generator: subprocess.Popen[bytes]) -> dict[str, Any]:
        if generator.wait():
            raise SystemExit("The load generator failed.")
        result: dict[str, Any] = json.loads(self._result.read_text())
        return result

    @property
    def _result(self) -> Path:
        return self.folder / "result.json"


def find_peak(offers: Offers, arguments: argparse.Namespace, other_load: OtherLoad) -> float:
    """Right answers a second, with a request always under way on every connection."""

    def measure() -> dict[str, float]:
        result = offers.result_of(offers.start(arguments.connections, 0, arguments.peak_seconds))
        if result["failed"]:
            raise SystemExit(f"Without any kill: {result['failures'][:3]}")
        return result

    measure()  # to warm up
    peak = measure() if arguments.at_once else other_load.undisturbed(measure)
    return peak["requests_per_second"]


def put_under_load(
    inside: Inside, offers: Offers, peak: float, arguments: argparse.Namespace
) -> Soak:
    rate, seconds = peak * arguments.share, arguments.minutes * 60
    foreign, start = foreign_seconds(), time.monotonic()
    killer = Killer(
        inside, arguments.kills_per_minute, arguments.kill_gateways, arguments.seed, start
    )
    memory: Memory = defaultdict(list)
    generator = offers.start(arguments.connections, rate, seconds)
    try:
        hurt_and_watch(inside, killer, memory, offers, generator, start + seconds)
    finally:
        generator.kill()
    cores = (foreign_seconds() - foreign) / (time.monotonic() - start)
    result = offers.result_of(generator)
    lost = unexplained(result["failures"], killer.kills)
    faults = settle(inside, killer, arguments.instances)
    gateways = len(inside.gateways())
    return Soak(arguments, gateways, peak, rate, result, killer.kills, memory, cores, lost, faults)


def hurt_and_watch(
    inside: Inside,
    killer: Killer,
    memory: Memory,
    offers: Offers,
    generator: subprocess.Popen[bytes],
    end: float,
) -> None:
    """Until the generator ends; from `end` on nothing is killed."""
    signed_at = measured_at = start = time.monotonic()
    while generator.poll() is None:
        now = time.monotonic()
        if now < end:
            killer.kill_what_is_due(now)
        killer.see_what_is_back(now)
        if measured_at + MEMORY_SECONDS <= now < end:
            measured_at = now
            for process, mib in inside.memory_mib().items():
                memory[process].append(((now - start) / 60, mib))
        if signed_at + SIGN_SECONDS <= now:
            signed_at = now
            offers.sign()
        time.sleep(TICK_SECONDS)


def settle(inside: Inside, killer: Killer, instances: int) -> list[str]:
    """Waits until everything is as before the load; returns the differences that stay."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (faults := unsettled(inside, killer, instances)) and time.monotonic() < deadline:
        time.sleep(TICK_SECONDS)
    return faults


def unsettled(inside: Inside, killer: Killer, instances: int) -> list[str]:
    killer.see_what_is_back(time.monotonic())
    faults = [f"{kill.name} does not serve again." for kill in killer.away]
    serving, running = inside.routed().keys(), inside.instances().keys()
    if serving != running or len(serving) != instances:
        faults.append(f"{len(running)} instances run and {len(serving)} are in the routes.")
    if left := inside.left_in_flight():
        faults.append(
            f"{left} cells of the in-flight table are not 0, though nothing is under way."
        )
    return faults


if __name__ == "__main__":
    sys.exit(main())
