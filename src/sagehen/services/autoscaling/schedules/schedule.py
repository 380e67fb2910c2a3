"""Schedules of scheduled actions: `at(…)`, `rate(…)` and `cron(…)`."""

import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from sagehen.base.errors import Invalid
from sagehen.services.autoscaling.schedules.cron import Cron, parse_cron

__all__ = ["At", "Rate", "Recurring", "Schedule", "next_run", "parse_schedule", "zone_of"]


@dataclass(frozen=True)
class At:
    """One run."""

    moment: float


@dataclass(frozen=True)
class Rate:
    """A run every so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Recurring:
    """Runs by a cron expression in a time zone."""

    cron: Cron
    zone: tzinfo


Schedule = At | Rate | Recurring

_FORM = re.compile(r"(at|rate|cron)\(([^()]*)\)")
_RATE = re.compile(r"([0-9]{1,9}) +(minute|minutes|hour|hours|day|days)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_AT = "%Y-%m-%dT%H:%M:%S"


def zone_of(name: str | None) -> tzinfo:
    """Raises Invalid for an unknown time zone."""
    if name is None:
        return UTC
    if name not in _zone_names():
        raise Invalid(f"{name!r} is not the name of an IANA time zone, such as Europe/Berlin")
    return ZoneInfo(name)


@functools.cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


def parse_schedule(text: str, timezone: str | None = None) -> Schedule:
    """Raises Invalid."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise Invalid(
            f"{text!r} is not a schedule: at(yyyy-mm-ddThh:mm:ss), rate(value unit) or cron(fields)"
        )
    kind, content = match[1], match[2].strip()
    zone = zone_of(timezone)
    if kind == "cron":
        return Recurring(parse_cron(content), zone)
    return _at(content, zone) if kind == "at" else _rate(content)


def _at(text: str, zone: tzinfo) -> At:
    try:
        return At(datetime.strptime(text, _AT).replace(tzinfo=zone).timestamp())
    except (ValueError, OverflowError):
        raise Invalid(f"at({text}) does not have the form at(yyyy-mm-ddThh:mm:ss)") from None


def _rate(text: str) -> Rate:
    match = _RATE.fullmatch(text)
    number = int(match[1]) if match else 0
    if match is None or number == 0:
        raise Invalid(
            f"rate({text}) does not have the form rate(value unit), with a positive whole number "
            "and minute, minutes, hour, hours, day or days"
        )
    return Rate(float(number * _SECONDS[match[2].rstrip("s")]))


def next_run(
    schedule: Schedule,
    after: float,
    counts_from: float,
    starts_at: float | None = None,
    ends_at: float | None = None,
) -> float | None:
    """Returns the first run later than `after`; None if there is none.

    A start time is itself a run; runs at the end time still happen. Missed runs are not caught up.

    Args:
        counts_from: when the first period of a rate begins; after a run, the time of that run.
    """
    if starts_at is not None and starts_at > after:
        at: float | None = starts_at
        if isinstance(schedule, At):
            at = schedule.moment if schedule.moment >= starts_at else None
    elif isinstance(schedule, At):
        at = schedule.moment if schedule.moment > after else None
    elif isinstance(schedule, Rate):
        periods = (after - counts_from) // schedule.seconds + 1
        at = counts_from + max(1, periods) * schedule.seconds
    else:
        at = schedule.cron.next_after(after, schedule.zone)
    return None if at is None or (ends_at is not None and at > ends_at) else at
