"""Parts that the benchmarks share: their options, one measurement, and the parts of a table."""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import wrk
from other_load import OtherLoad
from sides import HERE, Failed, Side

WARM_UP_SHARE = 0.2
"""share of a measurement's time that is spent under the same load before it"""

Measured = dict[str, float]
"""The output of load.py for one measurement."""


def options(
    description: str | None, seconds: float, choice_of_generator: bool = False
) -> argparse.ArgumentParser:
    """Returns the options that all benchmarks share.

    `choice_of_generator`: adds `--wrk`, for those whose load is all from `put_under_load`.
    """
    first_line = (description or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=first_line)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    parser.add_argument(
        "--at-once", action="store_true", help="whatever else the machine does: to try it out"
    )
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    if choice_of_generator:
        parser.add_argument(
            "--wrk", action=_ByWrk, nargs=0, help="load TCP ports by wrk, which must be installed"
        )
    return parser


class _ByWrk(argparse.Action):
    """Has all later measurements of this process made by wrk."""

    is_chosen = False

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        if not wrk.is_there():
            parser.error("wrk is not installed: apt-get install wrk")
        _ByWrk.is_chosen = True


def generator() -> str:
    """A line of a report."""
    name = "wrk" if _ByWrk.is_chosen else "benchmarks/load.py"
    return f"- The load generator is {name}."


def some(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads a comma list of these."""

    def read(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(words):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: unknown")
        return text.split(",")

    return read


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def measure(
    side: Side, rows: Sequence[str], connections: int, seconds: float, other_load: OtherLoad
) -> Measured:
    """One measurement of a side in calm, warmed up."""
    put_under_load(side, rows, connections, WARM_UP_SHARE * seconds)
    return other_load.undisturbed(partial(put_under_load, side, rows, connections, seconds))


def put_under_load(
    side: Side,
    rows: Sequence[str],
    connections: int,
    seconds: float,
    count: int | None = None,
) -> Measured:
    """One measurement of what load.py says; with `count`, of so many requests at most."""
    if _ByWrk.is_chosen and count is None and not side.host.startswith("/"):
        return _successful(side, wrk.run_wrk(side, rows, connections, seconds))
    # Signed anew each time: a signature grows old.
    requests = json.dumps([side.request(row).decode("latin-1") for row in rows])
    where = [side.host, str(side.port), str(connections), str(seconds), "/dev/stdin"]
    where += [] if count is None else [str(count)]
    generator = [sys.executable, str(HERE / "load.py"), *where]
    finished = subprocess.run(
        generator, input=requests, capture_output=True, text=True, check=False
    )
    if finished.returncode:
        raise Failed(f"{side.name}: {finished.stderr.strip()}")
    return _successful(side, json.loads(finished.stdout))


def _successful(side: Side, result: Measured) -> Measured:
    if result["failures"]:
        raise Failed(f"{side.name}: {result['failures']:.0f} answers were no success.")
    return result


def middle(measured: Sequence[Measured], key: str) -> float:
    return statistics.median(measurement[key] for measurement in measured)


def row_of(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def heading(subject: str) -> list[str]:
    return [f"# {subject}, {datetime.date.today().isoformat()}", ""]


def keep(report: str, topic: str) -> None:
    """Among the results, by today's date."""
    (HERE / "results" / f"{datetime.date.today().isoformat()}-{topic}.md").write_text(report)
