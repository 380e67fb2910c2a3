"""One XGBoost model, one CSV row a request: Sagehen next to plain FastAPI, in one run.

    make bench          or    python3 benchmarks/throughput.py [--seconds 5] [--repeats 3] [--save]
    python3 benchmarks/throughput.py --before TREE

With `--before`, the other side is the server of another checkout with a `.venv` of its own.
The sides take turns, each measured `repeats` times at 1, 8 and 64 connections; the table gives the
medians. Every answer is compared with the model's own before anything is measured.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from frame import Measured, generator, heading, keep, measure, middle, options, row_of
from house import check, make_model
from machine import describe_machine
from other_load import OtherLoad
from sides import Side, all_sides, two_trees

CONNECTIONS = (1, 8, 64)

Results = dict[tuple[str, int], list[Measured]]
"""Each measurement by side and connections."""


def main() -> None:
    parser = options(__doc__, seconds=5, choice_of_generator=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", type=Path, help="a checkout to be measured beside this one")
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        model, rows, expected = make_model(Path(folder))
        before = arguments.before
        servers = (
            two_trees(model, Path(folder), before.resolve())
            if before
            else all_sides(model, Path(folder))
        )
        with servers as sides:
            for side in sides:
                check(side, rows, expected)
            results = measure_all(sides, rows, arguments.seconds, arguments.repeats, other_load)
    report = render(results, other_load)
    print(report)
    if arguments.save:
        keep(report, "throughput-before-and-after" if before else "throughput")


def measure_all(
    sides: Sequence[Side], rows: Sequence[str], seconds: float, repeats: int, other_load: OtherLoad
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(repeats):
        for connections in CONNECTIONS:
            for side in sides:
                result = measure(side, rows, connections, seconds, other_load)
                results[side.name, connections].append(result)
                print(
                    f"{repeat + 1}/{repeats}  {connections:2} connections  "
                    f"{side.name:38} {result['requests_per_second']:8.0f}/s",
                    file=sys.stderr,
                )
    return results


def render(results: Results, other_load: OtherLoad) -> str:
    """The medians as a Markdown table."""
    names = list(dict.fromkeys(name for name, _ in results))
    first = names[0]
    lines = [*heading("Throughput"), *describe_machine(), generator(), other_load.describe(), ""]
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


def times(ratio: float) -> str:
    return "" if ratio == 1 else f"{ratio:.1f} times as fast"


if __name__ == "__main__":
    main()
