"""Schedules: their forms, and when they run next."""

from datetime import UTC, datetime

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.autoscaling.schedules.schedule import next_run, parse_schedule

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


def after(text, now=NOW, zone=None, **times):
    found = next_run(parse_schedule(text, zone), now, **{"counts_from": NOW} | times)
    return found if found is None else found - NOW


def test_at_runs_once_in_its_zone():
    assert after("at(2027-01-01T13:00:00)") == HOUR
    assert after("at(2027-01-01T13:00:00)", zone="Europe/Berlin") is None
    assert after("at(2027-01-01T13:00:01)", zone="Europe/Berlin") == 1
    assert after("at(2027-01-01T12:00:00)") is None


def test_rate_counts_from_its_beginning_and_catches_nothing_up():
    assert after("rate(5 minutes)") == 300
    assert after("rate(1 hour)", NOW + 10) == HOUR
    assert after("rate(1 day)", NOW + 30 * HOUR) == 48 * HOUR
    assert after("rate(1 hour)", NOW, counts_from=NOW + 10) == HOUR + 10


def test_cron_runs_in_its_zone():
    assert after("cron(0 14 * * ? *)") == 2 * HOUR
    assert after("cron(0 14 * * ? *)", zone="Europe/Berlin") == HOUR


def test_a_start_time_is_a_run_and_an_end_time_the_last_moment():
    assert after("cron(0 14 * * ? *)", starts_at=NOW + 60) == 60
    assert after("cron(0 14 * * ? *)", NOW + 60, starts_at=NOW + 60) == 2 * HOUR
    assert after("cron(0 14 * * ? *)", ends_at=NOW + 2 * HOUR) == 2 * HOUR
    assert after("cron(0 14 * * ? *)", ends_at=NOW + HOUR) is None
    assert after("rate(1 hour)", starts_at=NOW + 10) == 10
    assert after("at(2027-01-01T13:00:00)", starts_at=NOW + 2 * HOUR) is None


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("every day", None),
        ("at(2027-01-01)", None),
        ("at(2027-13-01T00:00:00)", None),
        ("rate(0 minutes)", None),
        ("rate(5 weeks)", None),
        ("rate(1.5 hours)", None),
        ("cron(0 10 * * ?)", None),
        ("cron(0 10 * * ? *", None),
        ("rate(1 hour)", "Europe/Entenhausen"),
        ("rate(1 hour)", "../etc/passwd"),
    ],
)
def test_what_is_no_schedule_is_refused(text, zone):
    with pytest.raises(Invalid):
        parse_schedule(text, zone)
