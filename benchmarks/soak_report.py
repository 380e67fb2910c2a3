"""Prints the results of a soak test, and whether they meet the targets."""

import argparse
import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from frame import row_of
from kills import Failure, Kill
from machine import describe_machine
from other_load import OtherLoad

SHOWN_FAILURES = 10
LONG_ENOUGH_MINUTES = 5.0
"""Before that, memory is still being filled for the first time."""
FLAT_SHARE, FLAT_MIB = 0.05, 2.0
"""Memory is flat where the last minute's mean is at most so much above the first one's …"""
FLAT_MIB_A_MINUTE = 0.2
"""… and the second half of the run has at most this slope."""
HELD_SHARE = 0.99
"""share of the offered requests that must be answered correctly and in time"""

Seen = Sequence[tuple[float, float]]
"""Minutes since the start, and MiB."""
Memory = dict[tuple[str, int], list[tuple[float, float]]]
"""By name and process id."""


@dataclass
class Soak:
    arguments: argparse.Namespace
    gateways: int
    peak: float
    rate: float
    result: dict[str, Any]
    """The generator's."""
    kills: list[Kill]
    memory: Memory
    foreign_cores: float
    lost: list[Failure]
    """Failures that no kill explains."""
    unsettled: list[str]
    """Differences that stayed after the load."""

    @property
    def lost_count(self) -> int:
        # The generator keeps only so many.
        return len(self.lost) + self.result["failed"] - len(self.result["failures"])

    @property
    def is_sound(self) -> bool:
        return not self.lost_count and not self.unsettled


def render(soak: Soak, other_load: OtherLoad) -> str:
    """All of it as Markdown."""
    chosen = soak.arguments
    plural = "s" if soak.gateways > 1 else ""
    return "\n".join(
        [
            f"# Soak, {datetime.date.today().isoformat()}",
            "",
            *describe_machine(),
            other_load.describe(),
            f"- Beside the soak, other processes used {soak.foreign_cores:.2f} cores on average.",
            f"- {chosen.minutes:g} minutes; {chosen.instances} instances, {soak.gateways} "
            f"gateway{plural}, {chosen.connections} connections",
            f"- In a closed loop {soak.peak:,.0f} requests/s; offered in an open one "
            f"{soak.rate:,.0f}/s, {chosen.share:.0%} of it",
            f"- {chosen.kills_per_minute:g} kills a minute, seed {chosen.seed}",
            "",
            *_tell_targets(soak),
            "",
            *_tell_requests(soak),
            "",
            *_tell_kills(soak.kills),
            "",
            *_tell_memory(soak.memory),
            "",
            *_tell_lost(soak.lost),
        ]
    )


def _tell_targets(soak: Soak) -> Iterator[str]:
    yield from _table("target", "measured", "met")
    held_share = _held_share(soak)
    yield row_of(["Nothing is lost", f"{soak.lost_count} lost", _met(not soak.lost_count)])
    settled = " ".join(soak.unsettled) or "everything serves, nothing is outstanding"
    yield row_of(["All is as before at the end", settled, _met(not soak.unsettled)])
    yield row_of(
        [
            f"{HELD_SHARE:.0%} of the load is held",
            f"{held_share:.2%}",
            _met(held_share >= HELD_SHARE),
        ]
    )
    trends = trends_of(soak.memory)
    growing = [name for name, trend in trends.items() if not trend.is_flat]
    memory_trend = f"growing: {', '.join(growing)}" if growing else "flat"
    too_short = [name for name, trend in trends.items() if trend.minutes < LONG_ENOUGH_MINUTES]
    yield row_of(
        ["Memory is flat", memory_trend, "too short to say" if too_short else _met(not growing)]
    )


def _tell_requests(soak: Soak) -> Iterator[str]:
    result = soak.result
    cut_off = Counter(kill.is_gateway for kill in soak.kills for _ in kill.failures)
    yield from _table("requests", "")
    yield row_of(["offered", f"{result['offered']:,}"])
    yield row_of(["answered right", f"{result['right']:,}"])
    yield row_of(["under way on a killed instance: ModelError", f"{cut_off[False]:,}"])
    yield row_of(["under way on a killed gateway, or connected to it", f"{cut_off[True]:,}"])
    yield row_of(["lost", f"{soak.lost_count:,}"])
    yield row_of(
        ["never sent, for want of a free connection", f"{result['offered'] - result['sent']:,}"]
    )
    yield row_of(["slowest second", f"{min(result['per_second'], default=0):,} answers"])
    for name in ("p50", "p99", "p999", "longest"):
        title = {"p999": "p99.9"}.get(name, name)
        yield row_of([f"latency, {title}", f"{result[name + '_ms']:.2f} ms"])


def _tell_kills(kills: Sequence[Kill]) -> Iterator[str]:
    yield from _table("killed", "times", "under way", "failed", "back after, median s", "longest s")
    for title, some in (
        ("instance", [kill for kill in kills if not kill.is_gateway]),
        ("gateway", [kill for kill in kills if kill.is_gateway]),
    ):
        if not some:
            continue
        away = [kill.back_at - kill.at for kill in some if kill.back_at is not None]
        under_way = sum(kill.in_flight for kill in some)
        failed = sum(len(kill.failures) for kill in some)
        times = [f"{np.median(away):.2f}", f"{max(away):.2f}"] if away else ["-", "-"]
        yield row_of([title, str(len(some)), f"{under_way:,}", f"{failed:,}", *times])
    yield ""
    yield (
        "Under way: requests that gateways waited for from an instance, of which those that it had "
        "read fail and the others go elsewhere; connections that a gateway had."
    )


# Memory


@dataclass(frozen=True)
class Trend:
    """The memory of one process over time, in MiB."""

    first: float
    """The mean of the first minute, or of the first third of a shorter run."""
    last: float
    slope: float
    """MiB a minute, over the second half"""
    minutes: float
    """from the first to the last sample"""

    @classmethod
    def of(cls, seen: Seen) -> "Trend":
        minutes, mib = np.array(seen).T
        span = min(1.0, (minutes[-1] - minutes[0]) / 3)
        first = mib[minutes <= minutes[0] + span].mean()
        last = mib[minutes >= minutes[-1] - span].mean()
        late = minutes >= (minutes[0] + minutes[-1]) / 2
        slope = np.polyfit(minutes[late], mib[late], 1)[0] if late.sum() > 2 else 0.0
        return cls(float(first), float(last), float(slope), float(minutes[-1] - minutes[0]))

    @property
    def is_flat(self) -> bool:
        bound = self.first * (1 + FLAT_SHARE) + FLAT_MIB
        return self.last <= bound and self.slope <= FLAT_MIB_A_MINUTE


def trends_of(memory: Memory) -> dict[str, Trend]:
    """By name: of each role the process that lived longest, as gateways may be killed too."""
    longest: dict[str, Seen] = {}
    for (name, _), seen in memory.items():
        if len(seen) > len(longest.get(name, ())):
            longest[name] = seen
    return {name: Trend.of(longest[name]) for name in sorted(longest)}


def _tell_memory(memory: Memory) -> Iterator[str]:
    yield from _table(
        "memory, MiB", "watched, minutes", "first minute", "last minute", "slope a minute"
    )
    for name, trend in trends_of(memory).items():
        numbers = (f"{trend.minutes:.1f}", f"{trend.first:.1f}", f"{trend.last:.1f}")
        yield row_of([name, *numbers, f"{trend.slope:+.2f}"])
    yield ""
    yield (
        "Resident; the slope is the second half's. Flat: the last minute is at most "
        f"{FLAT_SHARE:.0%} and {FLAT_MIB:g} MiB above the first, and the slope at most "
        f"{FLAT_MIB_A_MINUTE:g} MiB a minute. Too short: below {LONG_ENOUGH_MINUTES:g} minutes."
    )


# Small things


def _tell_lost(lost: Sequence[Failure]) -> Iterator[str]:
    for failure in lost[:SHOWN_FAILURES]:
        took = failure["at"] - failure["sent_at"]
        status = failure["status"] or ""
        yield f"- lost: {failure['kind']} {status} after {took:.3f} s: {failure['text']}"


def _held_share(soak: Soak) -> float:
    seconds = soak.arguments.minutes * 60
    return float(soak.result["requests_per_second"] * seconds / soak.result["offered"])


def _table(*titles: str) -> Iterator[str]:
    yield row_of(titles)
    yield f"|{'---|' * len(titles)}"


def _met(met: bool) -> str:
    return "yes" if met else "**no**"
