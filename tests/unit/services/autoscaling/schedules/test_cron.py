"""Cron expressions: the times that they stand for."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.autoscaling.schedules import cron
from sagehen.services.autoscaling.schedules.cron import _in_zone, parse_cron

NEW_YEAR = "2027-01-01T00:00"
"""a Friday"""


def times(expression, count=3, after=NEW_YEAR, zone=UTC):
    parsed, moment = parse_cron(expression), datetime.fromisoformat(after).replace(tzinfo=UTC)
    found, at = [], moment.timestamp()
    while len(found) < count and (at := parsed.next_after(at, zone)) is not None:
        found.append(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}")
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 10 * * ? *", ["2027-01-01T10:00", "2027-01-02T10:00", "2027-01-03T10:00"]),
        ("0/15 8 ? * MON *", ["2027-01-04T08:00", "2027-01-04T08:15", "2027-01-04T08:30"]),
        ("0 18 ? * MON-FRI *", ["2027-01-01T18:00", "2027-01-04T18:00", "2027-01-05T18:00"]),
        ("0 8 1 * ? *", ["2027-01-01T08:00", "2027-02-01T08:00", "2027-03-01T08:00"]),
        ("5 8,20 ? * 2,sun *", ["2027-01-03T08:05", "2027-01-03T20:05", "2027-01-04T08:05"]),
        ("0 0 L * ? *", ["2027-01-31T00:00", "2027-02-28T00:00", "2027-03-31T00:00"]),
        ("0 0 LW * ? *", ["2027-01-29T00:00", "2027-02-26T00:00", "2027-03-31T00:00"]),
        ("0 0 3W * ? *", ["2027-01-04T00:00", "2027-02-03T00:00", "2027-03-03T00:00"]),
        ("0 0 1W 5,8 ? *", ["2027-05-03T00:00", "2027-08-02T00:00", "2028-05-01T00:00"]),
        ("0 0 31W * ? *", ["2027-01-29T00:00", "2027-03-31T00:00", "2027-05-31T00:00"]),
        ("0 9 ? * 2#1 *", ["2027-01-04T09:00", "2027-02-01T09:00", "2027-03-01T09:00"]),
        ("0 9 ? * FRI#5 *", ["2027-01-29T09:00", "2027-04-30T09:00", "2027-07-30T09:00"]),
        ("0 9 ? * 6L *", ["2027-01-29T09:00", "2027-02-26T09:00", "2027-03-26T09:00"]),
        ("0 9 ? * L *", ["2027-01-02T09:00", "2027-01-09T09:00", "2027-01-16T09:00"]),
        ("0 0 29 2 ? *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 0 1 1 ? 2030-2031", ["2030-01-01T00:00", "2031-01-01T00:00"]),
        ("0 22-1 2 JAN ? 2027", ["2027-01-02T00:00", "2027-01-02T01:00", "2027-01-02T22:00"]),
        (
            "0 0 ? DEC-JAN FRI-SAT 2027",
            ["2027-01-02T00:00", "2027-01-08T00:00", "2027-01-09T00:00"],
        ),
        ("30 0 0 5 1 ? 2027", ["2027-01-05T00:00"]),
        ("0 0 31 2 ? *", []),
        ("0 0 1 1 ? 1999", []),
    ],
)
def test_expression_stands_for_these_times(expression, expected):
    assert times(expression) == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 10 * * ?", "six fields"),
        ("0 10 * * * *", "Exactly one of"),
        ("0 10 ? * ? *", "Exactly one of"),
        ("60 10 * * ? *", "minutes"),
        ("0 24 * * ? *", "hours"),
        ("0 10 32 * ? *", "day of month"),
        ("0 10 0W * ? *", "day of month"),
        ("0 10 * 13 ? *", "month"),
        ("0 10 ? * 8 *", "day of week"),
        ("0 10 ? * MOON *", "day of week"),
        ("0 10 ? * 2#6 *", "day of week"),
        ("0/0 10 * * ? *", "minutes"),
        ("0 10 * * ? 1969", "year"),
        ("*-3 10 * * ? *", "minutes"),
        ("x 0 10 * * ? *", "seconds"),
    ],
)
def test_expressions_that_mean_nothing_are_refused(expression, reason):
    with pytest.raises(Invalid, match=reason):
        parse_cron(expression)


class TestSummerTime:
    berlin = ZoneInfo("Europe/Berlin")

    def test_local_times_follow_the_clock(self):
        daily = times("0 9 * * ? *", 3, "2027-03-26T12:00", self.berlin)
        assert daily == ["2027-03-27T08:00", "2027-03-28T07:00", "2027-03-29T07:00"]

    def test_a_skipped_time_is_passed_over(self):
        daily = times("30 2 * * ? *", 2, "2027-03-27T12:00", self.berlin)
        assert daily == ["2027-03-29T00:30", "2027-03-30T00:30"]

    def test_a_time_that_comes_twice_counts_once(self):
        daily = times("30 2 * * ? *", 2, "2027-10-30T12:00", self.berlin)
        assert daily == ["2027-10-31T00:30", "2027-11-01T01:30"]

    def test_zones_far_from_utc_lose_no_day(self):
        daily = times("0 0 * * ? *", 2, NEW_YEAR, ZoneInfo("Pacific/Kiritimati"))
        assert daily == ["2027-01-01T10:00", "2027-01-02T10:00"]


def test_only_times_that_may_come_are_converted(monkeypatch):
    converted = []

    def convert(*args):
        converted.append(args)
        return _in_zone(*args)

    monkeypatch.setattr(cron, "_in_zone", convert)
    found = times("* * * * ? *", 1, "2027-03-28T18:30", ZoneInfo("Europe/Berlin"))
    assert found == ["2027-03-28T18:31"]
    assert len(converted) <= 2
