"""The cost of the walls around our model server: requests, p99, processor time and memory.

    python3 benchmarks/container_walls.py [--seconds 0.1] [--blocks 10] [--save]

Two servers serve the same XGBoost model. One has all walls around its containers, the other none,
by the setting `mount_opt_ml`. They are measured in short turns. What the walls add to a start is
measured by container_start.py.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import house
from frame import heading, keep, options
from machine import describe_machine
from other_load import OtherLoad
from short_turns import Blocks, Contender, compare, container_memory, containers, describe
from sides import Failed, Server, Side, deploy, server

CONNECTIONS = (1, 64)
PACKAGES = ("sagehen", "xgboost-cpu", "uvloop", "httptools")
SIDES = {"no walls": "false", "all walls": "true"}
"""values of the setting"""


def main() -> None:
    parser = options(__doc__, seconds=0.1)
    parser.add_argument("--blocks", type=int, default=10, help="of short turns")
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as name, ExitStack() as stack:
        folder = Path(name)
        question = house.make_model(folder)
        running = [stack.enter_context(deployed(folder, side, question.model)) for side in SIDES]
        for side, _ in running:
            house.check(side, question.rows, question.expected)
        blocks = arguments.blocks
        results = compare(
            running, question.rows[0], CONNECTIONS, arguments.seconds, blocks, other_load
        )
        memory = {side.name: container_memory(server) for side, server in running}
    report = render(results, memory, other_load)
    print(report)
    if arguments.save:
        keep(report, "container-walls")


@contextmanager
def deployed(folder: Path, name: str, model: Path) -> Iterator[Contender]:
    with server(folder / name, SAGEHEN_MOUNT_OPT_ML=SIDES[name]) as running:
        deploy(model, running)
        check_walls(running, name)
        host, port = running.address
        yield Side(name, host, port, partial(running.signed_request, "house")), running


def check_walls(running: Server, name: str) -> None:
    """Where the kernel allows no walls, nothing would be compared."""
    own = os.readlink("/proc/self/ns/mnt")
    others = [os.readlink(f"/proc/{each.pid}/ns/mnt") != own for each in containers(running)]
    if any(others) != (name == "all walls"):
        raise Failed(f"{name}: the containers have other walls; see `sagehen status`.")


def render(results: Blocks, memory: dict[str, dict[str, int]], other_load: OtherLoad) -> str:
    lines = [*heading("Walls around the model server"), *describe_machine(PACKAGES)]
    lines += [other_load.describe(), "", *describe(results)]
    for name, processes in memory.items():
        listed = ", ".join(f"{process} {size / 2**20:.1f}" for process, size in processes.items())
        total = sum(processes.values()) / 2**20
        lines.append(f"- memory of the container, {name}, PSS in MiB: {total:.1f} ({listed})")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
