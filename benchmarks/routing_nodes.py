"""Late binding across nodes with real processes: 4 gateways and 20 instances, and an ideal queue.

    .venv/bin/python benchmarks/routing_nodes.py [--seconds 20] [--save]

The nodes are processes of one machine: a gateway and five model servers each, which work on one
request at a time. Four users an instance call again when the answer is there, spread over the
gateways. Service times are those of routing.py, and so is the ideal queue.
"""

import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from frame import heading, keep, options, row_of
from load import Tally, load, summary
from machine import describe_machine
from other_load import OtherLoad
from remote_link import nodes, side
from routing import DRAWS, MEDIAN_SECONDS, SCRIPT, SIGMA, USERS_PER_INSTANCE, draw_seconds, simulate
from sides import Server

NODES, SERVERS = 4, 5


def main() -> None:
    parser = options(__doc__, seconds=20)
    parser.add_argument(
        "--slower", type=float, default=1, help="times: long beside what a busy machine takes"
    )
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    draws = [round(draw * arguments.slower, 6) for draw in draw_seconds(DRAWS)]
    with tempfile.TemporaryDirectory(prefix="sgh-") as name:
        folder = Path(name)
        (folder / "model" / "code").mkdir(parents=True)
        (folder / "model" / "code" / "inference.py").write_text(SCRIPT)
        (folder / "adapter").write_text("python")
        (folder / "slots").write_text("1")
        with nodes(folder, NODES, SERVERS) as running, ProcessPoolExecutor(NODES) as pool:
            measure = partial(call_all, pool, running, draws)
            measure(2.0)
            measured = other_load.undisturbed(partial(measure, arguments.seconds))
    # The same requests, in about the same order.
    drawn = zip(*(shuffled(draws, number) for number in range(NODES)), strict=True)
    together = [draw for of_all in drawn for draw in of_all]
    ideal = simulate(NODES * SERVERS, together, arguments.seconds)
    report = "\n".join(
        [
            *heading("Late binding across nodes"),
            *describe_machine(),
            other_load.describe(),
            f"- {NODES} nodes with a gateway and {SERVERS} instances each; "
            f"{USERS_PER_INSTANCE} users an instance; service times log-normal, median "
            f"{MEDIAN_SECONDS * arguments.slower * 1000:g} ms, sigma {SIGMA:g}",
            "",
            row_of(["", "requests/s", "p50 ms", "p99 ms", "p99 beside the ideal"]),
            "|---|---|---|---|---|",
            *(
                row_of(
                    [
                        title,
                        f"{one['requests_per_second']:.0f}",
                        f"{one['p50_ms']:.1f}",
                        f"{one['p99_ms']:.1f}",
                        f"{one['p99_ms'] / ideal['p99_ms'] - 1:+.1%}",
                    ]
                )
                for title, one in (("4 gateways", measured), ("one ideal queue (simulated)", ideal))
            ),
            "",
        ]
    )
    print(report)
    if arguments.save:
        keep(report, "routing-nodes")


def call_all(
    pool: ProcessPoolExecutor, running: list[Server], draws: list[float], seconds: float
) -> dict[str, float]:
    """Calls all gateways at once; what came back, together."""
    users = USERS_PER_INSTANCE * SERVERS
    # Signed before the first is sent: all gateways are to have their users at the same time.
    prepared = [
        (server.address, signed(server, shuffled(draws, number)))
        for number, server in enumerate(running)
    ]
    calls = [pool.submit(load, *each, users, seconds) for each in prepared]
    together = Tally()
    for call in calls:
        tally, _ = call.result()
        together.milliseconds += tally.milliseconds
        together.failures += tally.failures
    if together.failures:
        raise SystemExit(f"{together.failures} answers were no success.")
    return summary(together, seconds)


def shuffled(draws: list[float], number: int) -> list[float]:
    return random.Random(number).sample(draws, len(draws))


def signed(server: Server, draws: list[float]) -> list[bytes]:
    request = side("", server, "all").request
    return [request(str(draw)) for draw in draws]


if __name__ == "__main__":
    main()
