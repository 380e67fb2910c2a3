"""Prints the measurements of multimodel.py as tables, and whether they meet the targets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from frame import Measured, heading, row_of
from machine import describe_machine
from other_load import OtherLoad
from peer_results import verdict

CONNECTIONS = 8
ROOM_SHARE = 4
"""A bounded endpoint has room for one model in so many."""
WARM_P90_MS = 2.0
COLD_P90_MS = 60.0
KIBIBYTES_A_MODEL = 150
SLOWER_AT_MOST = 1.1
"""So much varies from one measurement to the next."""

Warm = tuple[str, Measured]


@dataclass
class Result:
    """Measurements of one server."""

    key: str
    name: str
    models: int
    version: str = ""
    cold_ms: list[float] = field(default_factory=list)
    warm: list[Measured] = field(default_factory=list)
    kibibytes: list[float] = field(default_factory=list)
    """Memory that a model adds to all processes together."""
    failure: str = ""

    def cold(self, share: float) -> float:
        ordered = sorted(self.cold_ms)
        return ordered[int((len(ordered) - 1) * share)]

    def middle(self, key: str) -> float:
        return statistics.median(measurement[key] for measurement in self.warm)


@dataclass(frozen=True)
class Hits:
    """How often models were loaded already while memory held only a part of them."""

    asked: str
    share: float
    ideal: float
    """The hits of an LRU cache of the same size."""


def render(
    results: Sequence[Result],
    hits: Sequence[Hits],
    more: Sequence[Warm],
    other_load: OtherLoad,
) -> str:
    measured = [result for result in results if result.warm]
    titles = (
        "server | version | models | cold p50 | p90 | warm req/s | p50 | p90 | p99 | KiB a model"
    )
    lines = [
        *heading("Many models behind one endpoint"),
        *describe_machine(),
        other_load.describe(),
        "- XGBoost models of 10, 25, 50 and 100 trees, one archive each of 4 to 34 KB.",
        "",
        f"Milliseconds; warm calls to random models over {CONNECTIONS} connections; memory is what "
        "a model adds to all processes of the server, pages that they share counted once.",
        "",
        f"| {titles} |",
        f"|{'---|' * 10}",
        *(row_of([one.name, one.version, *cells(one)]) for one in measured),
        *(f"\n- {one.name}: not measured. {one.failure}" for one in results if one.failure),
    ]
    if hits:
        lines += hits_table(hits)
    if more:
        lines += more_table(more)
    return "\n".join([*lines, "", "## Targets", "", *targets(measured, more), ""])


def cells(result: Result) -> list[str]:
    return [
        f"{result.models:,}",
        *(f"{result.cold(share):.1f}" for share in (0.5, 0.9)),
        f"{result.middle('requests_per_second'):,.0f}",
        *(f"{result.middle(key):.2f}" for key in ("p50_ms", "p90_ms", "p99_ms")),
        f"{statistics.median(result.kibibytes):,.0f}",
    ]


def hits_table(hits: Sequence[Hits]) -> list[str]:
    return [
        "",
        f"## Hits with room for one model in {ROOM_SHARE}",
        "",
        "| models asked for | found loaded | by an ideal LRU cache of that size |",
        "|---|---|---|",
        *(
            row_of([hits_row.asked, f"{hits_row.share:.1%}", f"{hits_row.ideal:.1%}"])
            for hits_row in hits
        ),
    ]


def more_table(more: Sequence[Warm]) -> list[str]:
    keys = ("p50_ms", "p90_ms", "p99_ms")
    return [
        "",
        "## Many more models",
        "",
        "| warm calls to | req/s | p50 | p90 | p99 |",
        "|---|---|---|---|---|",
        *(
            row_of(
                [
                    name,
                    f"{measured['requests_per_second']:,.0f}",
                    *(f"{measured[key]:.2f}" for key in keys),
                ]
            )
            for name, measured in more
        ),
    ]


def targets(results: Sequence[Result], more: Sequence[Warm]) -> list[str]:
    """A line of Markdown for each that the run can tell something about."""
    ours = next((result for result in results if result.key == "sagehen"), None)
    if ours is None:
        return ["- Sagehen was not measured."]
    warm, cold = ours.middle("p90_ms"), ours.cold(0.9)
    memory = statistics.median(ours.kibibytes)
    lines = [
        verdict(warm < WARM_P90_MS, f"warm p90 below {WARM_P90_MS:g} ms: {warm:.2f} ms"),
        verdict(cold < COLD_P90_MS, f"cold p90 below {COLD_P90_MS:g} ms: {cold:.1f} ms"),
        verdict(
            memory <= KIBIBYTES_A_MODEL,
            f"at most {KIBIBYTES_A_MODEL} KiB a model: {memory:.0f} KiB",
        ),
    ]
    if more:
        few, many = (more[index][1]["p90_ms"] for index in (0, 1))
        lines.append(
            verdict(
                many <= few * SLOWER_AT_MOST,
                f"warm calls no slower beside more models: p90 {few:.2f} ms, then {many:.2f} ms",
            )
        )
    return lines
