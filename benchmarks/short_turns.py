"""Two settings of one server, in many short turns, and what the second costs beside the first.

A machine's speed changes by half within seconds, as virtual cores sleep and others work, so a turn
of seconds measures that. Turns of a tenth of a second do not: both sides have the same machine.
"""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import psutil
from frame import row_of
from load import load
from other_load import OtherLoad
from sides import Failed, Server, Side

TURNS = 20
"""of each side in one block, which is compared as a whole"""


@dataclass
class Turns:
    """The turns of one side."""

    milliseconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0
    """of all processes of the server"""

    def add(self, other: "Turns") -> None:
        self.milliseconds += other.milliseconds
        self.seconds += other.seconds
        self.processor_seconds += other.processor_seconds

    def figures(self) -> dict[str, float]:
        ordered = sorted(self.milliseconds)
        count = len(ordered)
        return {
            "requests/s": count / self.seconds,
            "p50, ms": ordered[count // 2],
            "p99, ms": ordered[count * 99 // 100],
            "processor time, µs": self.processor_seconds / count * 1e6,
        }


Contender = tuple[Side, Server]
Blocks = dict[int, list[dict[str, Turns]]]
"""by number of connections; each with the turns of both sides, by name"""


def compare(
    contenders: Sequence[Contender],
    row: str,
    connections: Sequence[int],
    seconds: float,
    blocks: int,
    other_load: OtherLoad,
) -> Blocks:
    """Each block is measured in calm; one before them warms up."""
    results: Blocks = defaultdict(list)
    for count in connections:
        measure = partial(_take_turns, contenders, row, count, seconds)
        measure()
        results[count] = [other_load.undisturbed(measure) for _ in range(blocks)]
    return results


def _take_turns(
    contenders: Sequence[Contender], row: str, connections: int, seconds: float
) -> dict[str, Turns]:
    taken = {side.name: Turns() for side, _ in contenders}
    for number in range(TURNS):
        # Each first as often as the other.
        for side, running in contenders[:: 1 if number % 2 else -1]:
            before = processor_seconds(running.pid)
            tally, elapsed = load((side.host, side.port), [side.request(row)], connections, seconds)
            if tally.failures:
                raise Failed(f"{side.name}: {tally.failures} answers were no success.")
            used = processor_seconds(running.pid) - before
            taken[side.name].add(Turns(tally.milliseconds, elapsed, used))
    return taken


def processor_seconds(pid: int) -> float:
    """Returns the processor time of the process and its descendants, to the microsecond."""
    nanoseconds = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{thread}/schedstat") as counts:
                nanoseconds += int(counts.read().split()[0])
    return nanoseconds / 1e9


def containers(running: Server) -> list[psutil.Process]:
    """All processes that are there for containers: children of the agent, with theirs."""
    roles = psutil.Process(running.pid).children()
    return [process for role in roles for process in role.children(recursive=True)]


def container_memory(running: Server) -> dict[str, int]:
    """Their PSS, by name.

    Raises psutil.AccessDenied for a user who is not root: the kernel keeps some of them from it.
    """
    found: dict[str, int] = defaultdict(int)
    for process in containers(running):
        found[process.name()] += int(process.memory_full_info().pss)
    return dict(found)


def describe(results: Blocks) -> Iterator[str]:
    """Yields lines of Markdown: a table, and the differences of the second side."""
    first = next(iter(results.values()))[0]
    heads = next(iter(first.values())).figures()
    yield row_of(["connections", "side", *heads])
    yield row_of(["---"] * (2 + len(heads)))
    for connections, blocks in results.items():
        for name in first:
            together = Turns()
            for block in blocks:
                together.add(block[name])
            cells = (
                f"{value:.{0 if value > 100 else 3}f}" for value in together.figures().values()
            )
            yield row_of([str(connections), name, *cells])
    yield ""
    for connections, blocks in results.items():
        changes = [_change(*block.values()) for block in blocks]
        words = []
        for head in heads:
            values = sorted(change[head] for change in changes)
            middle = statistics.median(values)
            words.append(f"{head} {middle:+.1%} ({values[0]:+.1%} to {values[-1]:+.1%})")
        yield (
            f"- {connections} connections, {' beside '.join(list(first)[::-1])}, median of "
            f"{len(blocks)} blocks of {TURNS} turns (least and most): {'; '.join(words)}"
        )


def _change(before: Turns, after: Turns) -> dict[str, float]:
    old, new = before.figures(), after.figures()
    return {head: new[head] / old[head] - 1 for head in old}
