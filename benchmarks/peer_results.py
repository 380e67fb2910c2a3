"""The project's targets beside its peers, and whether a run meets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frame import Measured, middle

SAGEHEN = "sagehen"
BARE = "bare"
"""the key of the bare call, which is no server"""
BATCHING = ("triton", "torchserve")
BATCHING_TIMES = 1.5
FRAMEWORKS = ("litserve", "bentoml", "mlserver", "ray")
BEST_TIMES = 6
"""the aim against the fastest framework in its faster mode"""
DEFAULT_TIMES = 15
"""the aim against the fastest framework with default settings"""
ADDED_MS = 0.15
"""bound on what Sagehen adds to a bare call at one connection"""


@dataclass
class Result:
    """The figures of one server in one of its modes, or of a bare call."""

    key: str
    name: str
    mode: str = ""
    version: str = ""
    measured: dict[int, list[Measured]] = field(default_factory=dict)
    """By connections."""
    mebibytes: list[float] = field(default_factory=list)
    failure: str = ""
    """Why it was not measured, or less often than the others."""

    def add(self, measured: Mapping[int, Measured], mebibytes: float = 0) -> None:
        for connections, once in measured.items():
            self.measured.setdefault(connections, []).append(once)
        self.mebibytes.append(mebibytes)

    def middle(self, connections: int, key: str) -> float:
        return middle(self.measured[connections], key)

    def rate(self, connections: int) -> float:
        return self.middle(connections, "requests_per_second")


def targets(results: Sequence[Result]) -> list[str]:
    """A line of Markdown for each that the run can tell something about."""
    measured = [result for result in results if result.measured]
    ours = next((result for result in measured if result.key == SAGEHEN), None)
    if not ours:
        return ["- Sagehen was not measured."]
    rivals = [result for result in measured if result.key not in (SAGEHEN, BARE)]
    batching = [[rival for rival in rivals if rival.key == key] for key in BATCHING]
    frameworks = [rival for rival in rivals if rival.key in FRAMEWORKS]
    defaults = [rival for rival in frameworks if rival.mode == "default"]
    lines = [faster(ours, group, BATCHING_TIMES) for group in batching if group]
    lines += [faster(ours, frameworks, BEST_TIMES)] if frameworks else []
    lines += [faster(ours, defaults, DEFAULT_TIMES)] if defaults else []
    lines += [steadier(ours, rivals), ahead(ours, rivals)] if rivals else []
    return lines + [near(ours, result) for result in measured if result.key == BARE]


def faster(ours: Result, rivals: Sequence[Result], times: float) -> str:
    best = max(rivals, key=lambda rival: rival.rate(64))
    names = [rival.name for rival in rivals]
    whom = names[0] if len(names) == 1 else f"the best of ({'; '.join(names)})"
    ratio = ours.rate(64) / best.rate(64)
    return verdict(
        ratio >= times,
        f"64 connections, at least {times:g} times {whom}: {ratio:.1f} times {best.name}",
    )


def steadier(ours: Result, rivals: Sequence[Result]) -> str:
    best = min(rivals, key=lambda rival: rival.middle(64, "p99_ms"))
    p99, theirs = (result.middle(64, "p99_ms") for result in (ours, best))
    return verdict(
        p99 < theirs,
        f"64 connections, a lower p99 than every one: {p99:.1f} ms, {best.name} {theirs:.1f} ms",
    )


def ahead(ours: Result, rivals: Sequence[Result]) -> str:
    best = max(rivals, key=lambda rival: rival.rate(8))
    return verdict(
        ours.rate(8) > best.rate(8),
        f"8 connections, ahead of all: {ours.rate(8):,.0f}/s, {best.name} {best.rate(8):,.0f}/s",
    )


def near(ours: Result, bare: Result) -> str:
    p50, alone = (result.middle(1, "p50_ms") for result in (ours, bare))
    return verdict(
        p50 - alone <= ADDED_MS,
        f"1 connection, within {ADDED_MS} ms of {bare.name}: "
        f"{p50 - alone:.2f} ms more ({p50:.2f} and {alone:.2f})",
    )


def verdict(met: bool, text: str) -> str:
    return f"- {'met' if met else 'NOT MET'}: {text}"
