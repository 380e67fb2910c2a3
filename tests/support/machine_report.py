"""What kills of a cluster's machines have cost, as tables."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from support.killed_machines import NodeKill
from support.machine_jobs import TrainingJobs, TransformJobs
from support.machine_traffic import Call, Traffic, reason, twice_begun
from support.sure_endpoint import Told

__all__ = ["Round", "report"]

_Row = tuple[str, object]


@dataclass(frozen=True)
class Round:
    """A kill, and what followed."""

    kill: NodeKill
    down_seconds: float
    """until its machine was started again"""
    whole_seconds: float
    """from the kill until all nodes answered"""
    back_seconds: float
    """from the kill until each caller was answered, and the last error was over"""
    errors: Sequence[Call]
    """those that ended after the kill"""

    def __str__(self) -> str:
        kill = self.kill
        marks = [
            word for word, holds in (("led", kill.led), ("Ray's head", kill.had_ray_head)) if holds
        ]
        errors = "".join(
            f"\n    {each.began - kill.began:.2f} to {each.ended - kill.began:.2f} s, "
            f"{each.url}: {each.error}"
            for each in self.errors
        )
        return (
            f"{kill.machine.host} ({', '.join(marks) or '-'}), {kill.processes} processes: traffic "
            f"back after {self.back_seconds:.2f} s, started after {self.down_seconds:.1f} s, whole "
            f"after {self.whole_seconds:.1f} s{errors}"
        )


def report(
    seed: int,
    rounds: list[Round],
    traffic: Traffic,
    told: Told,
    wrong: list[tuple[str, str]],
    transforms: TransformJobs,
    trainings: TrainingJobs,
    ends: Counter[str],
) -> str:
    """Returns Markdown."""
    kills = [each.kill for each in rounds]
    begun = traffic.begun()
    reasons = [reason(call, kills, begun) for call in traffic.errors()]
    rows = [
        *_kill_rows(kills),
        *_work_rows(told, wrong, transforms, trainings, ends),
        *_traffic_rows(rounds, traffic, reasons),
    ]
    lines = [
        f"- Three Ray nodes, two with a control, on one machine; PostgreSQL; seed {seed}",
        "",
        "| what | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        *_lines_of_rounds(rounds, reasons),
    ]
    for call, why in zip(traffic.errors(), reasons, strict=True):
        if why is None:
            lines.append(f"\nUnexplained: {call}, begun in {begun.get(call.body)}")
    for line in (*wrong[:20], *transforms.wrong, *trainings.wrong):
        lines.append(f"\nWrong: {line}")
    return "\n".join(lines) + "\n"


def _kill_rows(kills: Sequence[NodeKill]) -> list[_Row]:
    return [
        ("kills", len(kills)),
        ("of the leading control's node", sum(kill.led for kill in kills)),
        ("of the node with Ray's head", sum(kill.had_ray_head for kill in kills)),
        ("processes killed", sum(kill.processes for kill in kills)),
    ]


def _work_rows(
    told: Told,
    wrong: list[tuple[str, str]],
    transforms: TransformJobs,
    trainings: TrainingJobs,
    ends: Counter[str],
) -> list[_Row]:
    lost = [name for name, why in wrong if "0 objects" in why or "of 0 ids" in why]
    doubled = [name for name, why in wrong if name not in lost]
    return [
        ("asynchronous requests accepted", len(told.accepted)),
        ("lost", len(set(lost))),
        ("duplicated or wrong", len(set(doubled))),
        (
            "transform jobs, with the outputs of an undisturbed run",
            f"{transforms.identical} of {len(transforms.names)}",
        ),
        (
            "training jobs, completed",
            f"{len(trainings.names) - len(trainings.wrong)} of {len(trainings.names)}",
        ),
        (
            "interrupted; attempts that went on from a checkpoint",
            f"{trainings.restarted}; {trainings.resumed}",
        ),
        (
            "ends of jobs that were told other than once",
            sum(ends[name] != 1 for name in (*transforms.names, *trainings.names)),
        ),
    ]


def _traffic_rows(
    rounds: Sequence[Round], traffic: Traffic, reasons: Sequence[str | None]
) -> list[_Row]:
    explained = Counter(each.partition(": ")[2] for each in reasons if each is not None)
    back = sorted(each.back_seconds for each in rounds)
    return [
        ("synchronous requests", sum(map(len, traffic.calls))),
        ("errors", len(reasons)),
        *((f"errors: {name}", count) for name, count in sorted(explained.items())),
        ("errors that no kill explains", reasons.count(None)),
        ("begun twice", len(twice_begun(traffic))),
        ("traffic back after, s: p50", f"{statistics.median(back):.2f}"),
        ("p90", f"{back[min(len(back) - 1, int(len(back) * 0.9))]:.2f}"),
        ("max", f"{back[-1]:.2f}"),
        ("longest right answer, s", f"{traffic.longest_of_right():.2f}"),
    ]


def _lines_of_rounds(rounds: Sequence[Round], reasons: Sequence[str | None]) -> list[str]:
    lines = [
        "| kill | node | led | Ray's head | down, s | traffic back, s | all back, s | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, each in enumerate(rounds, start=1):
        kill = each.kill
        own = sum(why is not None and why.startswith(f"{number}:") for why in reasons)
        lines.append(
            f"| {number} | {kill.machine.host} | {'yes' if kill.led else ''} | "
            f"{'yes' if kill.had_ray_head else ''} | {each.down_seconds:.1f} | "
            f"{each.back_seconds:.2f} | {each.whole_seconds:.1f} | {own} |"
        )
    return lines
