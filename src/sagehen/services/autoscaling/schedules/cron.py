"""EventBridge's cron expressions: minutes, hours, day of month, month, day of week, year.

Days of the week count from Sunday, 1. One of the two days is `?`. `L` is the last day (of the
month) or the last such weekday (`6L`), `15W` the weekday nearest to the 15th, `2#1` the first
Monday.

A local time that a change to summer time skips does not exist and is passed over; one that comes
twice counts once, the first time.
"""

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from sagehen.base.errors import Invalid

__all__ = ["Cron", "parse_cron"]

FIRST_YEAR, LAST_YEAR = 1970, 2199
LONGEST_SEARCH_YEARS = 28
"""after which the calendar repeats: a date that has not come by then never comes"""

_MONTH_NAMES = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
_WEEKDAYS = {"SUN": 1, "MON": 2, "TUE": 3, "WED": 4, "THU": 5, "FRI": 6, "SAT": 7}

DayTest = Callable[[date], bool]


@dataclass(frozen=True)
class Cron:
    """A parsed expression."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    years: frozenset[int]
    is_day: DayTest

    def next_after(self, moment: float, zone: tzinfo) -> float | None:
        """Returns the first time of the schedule after `moment`, None if there is none; both are
        seconds since the epoch.
        """
        local = datetime.fromtimestamp(moment, zone)
        today, time_of_day = local.date(), (local.hour, local.minute)
        for day in self._days(today):
            for hour in self.hours:
                for minute in self.minutes:
                    # Of times that come twice the first counts, so that earlier ones are over.
                    if day == today and (hour, minute) < time_of_day:
                        continue
                    at = _in_zone(day, hour, minute, zone)
                    if at is not None and at > moment:
                        return at
        return None

    def _days(self, first: date) -> Iterator[date]:
        day = first
        last_year = min(LAST_YEAR, first.year + LONGEST_SEARCH_YEARS)
        while day.year <= last_year:
            if day.year not in self.years:
                day = date(day.year + 1, 1, 1)
            elif day.month not in self.months:
                day = _next_month(day)
            else:
                if self.is_day(day):
                    yield day
                day += timedelta(days=1)


def parse_cron(expression: str) -> Cron:
    """Reads the part between the parentheses; raises Invalid.

    A seventh field, the first, holds seconds; it is checked and has no effect.
    """
    fields = expression.split()
    if len(fields) == 7:
        _values("seconds", fields.pop(0), 0, 59)
    if len(fields) != 6:
        raise Invalid(
            f"A cron expression has six fields (minutes, hours, day of month, month, day of week, "
            f"year), not {len(fields)}"
        )
    minutes, hours, day, month, weekday, year = fields
    if (day == "?") == (weekday == "?"):
        raise Invalid("Exactly one of day of month and day of week has to be ?")
    return Cron(
        minutes=tuple(sorted(_values("minutes", minutes, 0, 59))),
        hours=tuple(sorted(_values("hours", hours, 0, 23))),
        months=_values("month", month, 1, 12, _MONTHS),
        years=_values("year", year, FIRST_YEAR, LAST_YEAR),
        is_day=_day_of_week(weekday) if day == "?" else _day_of_month(day),
    )


_ITEM = re.compile(r"(\*|[0-9A-Z]+)(?:-([0-9A-Z]+))?(?:/([0-9]+))?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_LAST_WEEKDAY = re.compile(r"([0-9A-Z]+)L")
_NTH_WEEKDAY = re.compile(r"([0-9A-Z]+)#([1-5])")


def _values(
    field: str, text: str, least: int, most: int, names: Mapping[str, int] | None = None
) -> frozenset[int]:
    """Reads `*`, numbers, names, ranges, steps and lists of these."""
    found: set[int] = set()
    for item in text.upper().split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _unreadable(field, text)
        first, last, step = match.groups()
        if step is not None and int(step) == 0:
            raise _unreadable(field, text)
        if first == "*":
            if last is not None:
                raise _unreadable(field, text)
            low, high = least, most
        else:
            low = _number(field, first, least, most, names)
            # `5/10` goes on to the end.
            high = most if step is not None else low
            if last is not None:
                high = _number(field, last, least, most, names)
        width = int(step or 1)
        if low <= high:
            found.update(range(low, high + 1, width))
        else:  # `FRI-MON` and `22-2` go over the end.
            around = [*range(low, most + 1), *range(least, high + 1)]
            found.update(around[::width])
    return frozenset(found)


def _number(
    field: str, text: str, least: int, most: int, names: Mapping[str, int] | None = None
) -> int:
    number = (names or {}).get(text)
    if number is None:
        if not text.isdecimal():
            raise _unreadable(field, text)
        number = int(text)
    if not least <= number <= most:
        raise Invalid(f"The {field} of a cron expression is from {least} to {most}, not {text}")
    return number


def _day_of_month(text: str) -> DayTest:
    upper = text.upper()
    if upper == "L":
        return lambda day: day.day == _days_in_month(day)
    if upper == "LW":
        return lambda day: day == _nearest_weekday(day, _days_in_month(day))
    if match := _NEAREST.fullmatch(upper):
        number = _number("day of month", match[1], 1, 31)
        return lambda day: number <= _days_in_month(day) and day == _nearest_weekday(day, number)
    numbers = _values("day of month", text, 1, 31)
    return lambda day: day.day in numbers


def _nearest_weekday(day: date, number: int) -> date:
    """Returns the day from Monday to Friday that is nearest to a day of the same month."""
    target = day.replace(day=number)
    shift = {5: -1, 6: 1}.get(target.weekday(), 0)
    nearest = target + timedelta(days=shift)
    if nearest.month == target.month:
        return nearest
    return target + timedelta(days=2 if shift < 0 else -2)


def _day_of_week(text: str) -> DayTest:
    upper = text.upper()
    if upper == "L":
        upper = "7"
    if match := _LAST_WEEKDAY.fullmatch(upper):
        last = _number("day of week", match[1], 1, 7, _WEEKDAYS)
        return lambda day: _weekday(day) == last and day.day + 7 > _days_in_month(day)
    if match := _NTH_WEEKDAY.fullmatch(upper):
        number = _number("day of week", match[1], 1, 7, _WEEKDAYS)
        nth = int(match[2])
        return lambda day: _weekday(day) == number and (day.day + 6) // 7 == nth
    numbers = _values("day of week", upper, 1, 7, _WEEKDAYS)
    return lambda day: _weekday(day) in numbers


def _weekday(day: date) -> int:
    """Counts from Sunday, 1."""
    return day.isoweekday() % 7 + 1


def _days_in_month(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def _in_zone(day: date, hour: int, minute: int, zone: tzinfo) -> float | None:
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    at = local.timestamp()
    # A time that is skipped comes back as another one.
    back = datetime.fromtimestamp(at, UTC).astimezone(zone).replace(tzinfo=None)
    return at if back == local.replace(tzinfo=None) else None


def _unreadable(field: str, text: str) -> Invalid:
    return Invalid(f"The {field} {text!r} of a cron expression cannot be read")
