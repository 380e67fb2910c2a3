"""What is counted while requests are answered, and how it is told."""

import random
from typing import Any

import msgspec
import pytest

from sagehen.gateway.client.limits import Limit
from sagehen.gateway.gateway import COUNTERS_PATH, UNCHANGED_REPORT_SECONDS
from sagehen.gateway.metrics.counters import (
    MAX_GONE_VARIANTS,
    WINDOW_REPORTS,
    Counters,
    InFlightCounter,
)
from support.fixtures.gateway import eventually


def told(counters: Counters) -> list[dict[str, Any]]:
    variants: list[dict[str, Any]] = msgspec.json.decode(counters.report())["variants"]
    return variants


def test_times_are_told_with_their_number_sum_and_sketch() -> None:
    counters = Counters("1")
    counters.variant("Houses", "a").model_latency.recent += [1000, 1000, 41_000]

    (variant,) = told(counters)

    assert variant["ModelLatency"] == {
        "count": 3,
        "sum": 43_000,
        "buckets": {"346": 2, "532": 1},
    }
    assert variant["OverheadLatency"] == {"count": 0, "sum": 0, "buckets": {}}


def test_times_add_up_from_report_to_report() -> None:
    counters = Counters("1")
    latency = counters.variant("Houses", "a").model_latency
    latency.recent.append(1000)
    first = told(counters)[0]["ModelLatency"]
    unchanged = told(counters)[0]["ModelLatency"]
    latency.recent.append(1000)

    assert first == unchanged == {"count": 1, "sum": 1000, "buckets": {"346": 1}}
    assert told(counters)[0]["ModelLatency"]["count"] == 2


def test_a_digest_leaves_nothing_to_pile_up() -> None:
    counters = Counters("1")
    latency = counters.variant("Houses", "a").model_latency
    latency.recent += range(1000)
    counters.digest()

    assert latency.recent == []
    assert told(counters)[0]["ModelLatency"]["count"] == 1000


@pytest.mark.parametrize(
    ("steps", "now", "highest"),
    [("", 0, 0), ("+++", 3, 3), ("+-", 0, 1), ("++-+", 2, 2)],
)
def test_how_many_are_in_flight_and_were_at_most(steps: str, now: int, highest: int) -> None:
    in_flight = InFlightCounter()
    for step in steps:
        in_flight.enter() if step == "+" else in_flight.leave()

    assert in_flight.report() == {"now": now, "lowest": 0, "highest": highest}


def test_in_flight_is_told_over_a_window() -> None:
    in_flight = InFlightCounter()
    for _ in range(5):
        in_flight.enter()
    in_flight.report()
    in_flight.leave()

    windows = [in_flight.report() for _ in range(WINDOW_REPORTS + 1)]

    assert windows[0] == {"now": 4, "lowest": 0, "highest": 5}
    # The report in which the fifth came is out of the window, then the one in which one left.
    assert windows[-2] == {"now": 4, "lowest": 4, "highest": 5}
    assert windows[-1] == {"now": 4, "lowest": 4, "highest": 4}


def test_variants_that_are_gone_are_forgotten_once_there_are_many() -> None:
    counters = Counters("1")
    for number in range(MAX_GONE_VARIANTS + 2):
        counters.variant(f"e{number}", "a")

    counters.keep_only({("e1", "a")})

    assert [one["endpoint"] for one in told(counters)] == ["e1"]


@pytest.mark.parametrize("seed", range(5))
def test_reports_of_idle_variants_are_those_of_others(seed: int) -> None:
    """They are made once, and again after any change."""
    source = random.Random(seed)
    kept, made = Counters("1"), Counters("1")
    for _ in range(200):
        change = source.choice(["", "", "", "", "enter", "leave", "count", "queue", "time"])
        for counters in (kept, made):
            variant = counters.variant("e", "v")
            if change == "enter":
                variant.in_flight.enter()
            elif change == "leave" and variant.in_flight.now:
                variant.in_flight.leave()
            elif change == "count":
                variant.errors_4xx += 1
            elif change == "queue":
                variant.queued.enter()
                variant.queued.leave()
            elif change == "time":
                variant.model_latency.recent.append(1000)
        made._reported.clear()
        made.variant("e", "v").in_flight._idle_reports = 0
        assert kept.report() == made.report()


def test_the_report_of_an_idle_variant_is_not_made_again() -> None:
    counters = Counters("1")
    variant = counters.variant("e", "v")
    variant.in_flight.enter()
    variant.in_flight.leave()
    variant.model_latency.recent.append(1000)
    for _ in range(WINDOW_REPORTS + 2):
        counters.report()
    before = counters._reported["e", "v", "", False]
    counters.report()
    assert counters._reported["e", "v", "", False] is before
    variant.invocations += 1
    assert told(counters)[0]["Invocations"] == 1


def test_limits_are_told_by_name_before_they_are_met() -> None:
    counters = Counters("1")
    counters.limit_hits[Limit.QUEUE] += 1

    told = msgspec.json.decode(counters.report())["limit_hits"]

    assert told == {"queue": 1} | {limit.value: 0 for limit in Limit if limit != "queue"}


def test_a_report_says_whether_a_control_has_read_an_earlier_one() -> None:
    counters = Counters("1")
    first = msgspec.json.decode(counters.report())
    counters.was_reported = True
    later = msgspec.json.decode(counters.report())

    assert (first["was_reported"], later["was_reported"]) == (False, True)


async def test_control_is_told_what_is_new_at_once_and_the_same_seldom(house) -> None:
    """Each report is a request that both have to work on: an idle gateway has nothing to say."""
    await house.start()
    reports = 0

    def answer(asked):
        nonlocal reports
        reports += asked.path == COUNTERS_PATH
        return 204, {}, b""

    await house.fake(answer, house.home.control_socket)
    # The second says that the first was read.
    await eventually(lambda: house.gateway._last_report == house.gateway._counters.report())
    assert reports == 2
    for _ in range(3):
        await house.gateway._report_counters()
    assert reports == 2
    house.clock.advance(UNCHANGED_REPORT_SECONDS)
    await eventually(lambda: reports == 3)
    house.gateway._counters.limit_hits[Limit.QUEUE] += 1
    await eventually(lambda: reports == 4)


async def test_a_report_that_control_refuses_is_not_read(house) -> None:
    """A control that does not lead, and cannot reach the one that does, refuses reports."""
    await house.start()
    statuses = [503, 503, 204]
    told = []

    def answer(asked):
        if asked.path == COUNTERS_PATH:
            told.append(msgspec.json.decode(asked.body)["was_reported"])
            return statuses[min(len(told), len(statuses)) - 1], {}, b""
        return 204, {}, b""

    await house.fake(answer, house.home.control_socket)
    await eventually(lambda: len(told) >= 4)
    assert told[:4] == [False, False, False, True]


async def test_a_control_that_was_away_is_told_again(house) -> None:
    await house.start()
    control = await house.control(lambda asked: (204, {}, b""))
    await eventually(lambda: house.told)
    house.told = None
    control.hang_up()
    control.stop_listening()
    house.clock.advance(UNCHANGED_REPORT_SECONDS)
    await eventually(lambda: not house.gateway._last_report)
    await house.control(lambda asked: (204, {}, b""))
    await eventually(lambda: house.told)
