"""Sagehen next to the least that a gateway over HTTP/1.1 can do, one CSV row a request.

    python3 benchmarks/against_minimal.py [--seconds 3] [--repeats 5] [--wrk] [--save]

The minimal gateway and its model server (minimal_gateway.py) check, route, count and limit nothing.
Sagehen runs with one gateway and with two, which check the signature of each request.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from frame import Measured, generator, heading, keep, measure, middle, options, row_of
from house import ask, check, make_model
from machine import describe_machine
from other_load import OtherLoad
from sides import HERE, Failed, Side, deploy, free_port, plain_request, process, server, wait_for

CONNECTIONS = (1, 8, 64)
AIM = 0.85
"""of the minimal gateway's requests/s at 64 connections"""


def main() -> None:
    parser = options(__doc__, seconds=3, choice_of_generator=True)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    results: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="sgh-") as name, ExitStack() as stack:
        folder = Path(name)
        question = make_model(folder)
        sides = [
            stack.enter_context(minimal(question.model, folder)),
            *(stack.enter_context(gateways(question.model, folder, count)) for count in (1, 2)),
        ]
        for side in sides:
            check(side, question.rows, question.expected)
        for repeat in range(arguments.repeats):
            print(f"{repeat + 1}/{arguments.repeats}", file=sys.stderr)
            for count in CONNECTIONS:
                for side in sides:
                    once = measure(side, question.rows, count, arguments.seconds, other_load)
                    results.setdefault((side.name, count), []).append(once)
    report = render([side.name for side in sides], results, other_load)
    print(report)
    if arguments.save:
        keep(report, "against-minimal")


@contextmanager
def minimal(model: Path, folder: Path) -> Iterator[Side]:
    path, port = folder / "minimal.sock", free_port()
    program = [sys.executable, str(HERE / "minimal_gateway.py")]
    with ExitStack() as stack:
        container = stack.enter_context(process([*program, "container", str(path), str(model)]))
        wait_for(path.exists, container)
        gateway = stack.enter_context(process([*program, "gateway", str(port), str(path)]))
        side = Side("minimal gateway", "127.0.0.1", port, partial(plain_request, port))
        wait_for(partial(answers, side), gateway)
        yield side


def answers(side: Side) -> bool:
    try:
        ask(side, "1,2,3,4,5,6")
    except Failed:
        return False
    return True


@contextmanager
def gateways(model: Path, folder: Path, count: int) -> Iterator[Side]:
    own = folder / f"gateways-{count}"
    own.mkdir()
    with server(own, SAGEHEN_GATEWAYS=str(count)) as running:
        deploy(model, running)
        name = f"Sagehen, {count} gateway{'s' if count > 1 else ''}"
        yield Side(name, *running.address, partial(running.signed_request, "house"))


def render(
    names: Sequence[str], results: dict[tuple[str, int], list[Measured]], other_load: OtherLoad
) -> str:
    bound = names[0]
    lines = [
        *heading("Sagehen next to a minimal gateway"),
        *describe_machine(),
        generator(),
        other_load.describe(),
        "",
        "| connections | side | requests/s | of the minimal one's | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    shares: dict[tuple[str, int], float] = {}
    for count in CONNECTIONS:
        whole = middle(results[bound, count], "requests_per_second")
        for name in names:
            measured = results[name, count]
            rate = middle(measured, "requests_per_second")
            shares[name, count] = rate / whole
            latencies = (f"{middle(measured, key):.2f}" for key in ("p50_ms", "p99_ms"))
            lines.append(
                row_of((str(count), name, f"{rate:,.0f}", f"{rate / whole:.2f}", *latencies))
            )
    best = max(names[1:], key=lambda name: shares[name, 64])
    met = "met" if shares[best, 64] >= AIM else "NOT MET"
    lines += ["", f"- {met}: 64 connections, at least {AIM}: {shares[best, 64]:.2f}, {best}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
