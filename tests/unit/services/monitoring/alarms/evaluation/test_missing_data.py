"""M out of N datapoints with holes: the rows that CloudWatch documents, and random series."""

import random

import pytest

from sagehen.services.monitoring.alarms.evaluation.missing_data import Treatment, judge
from sagehen.services.monitoring.alarms.records import AlarmState

OK, ALARM, UNKNOWN, KEPT = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA, None

# The vendor's two tables: range (old to new; 0 is fine, X breaches, - is missing), N, M, and the
# state with `missing`, `ignore`, `breaching` and `notBreaching`.
ROWS = [
    ("0 - X - X", 3, 3, 0, OK, OK, OK, OK),
    ("0 - - - -", 3, 3, 2, OK, OK, OK, OK),
    ("- - - - -", 3, 3, 3, UNKNOWN, KEPT, ALARM, OK),
    ("0 X X - X", 3, 3, 0, ALARM, ALARM, ALARM, ALARM),
    ("- - X - -", 3, 3, 2, ALARM, KEPT, ALARM, OK),
    ("0 - X - X", 3, 2, 0, ALARM, ALARM, ALARM, ALARM),
    ("0 0 X 0 X", 3, 2, 0, ALARM, ALARM, ALARM, ALARM),
    ("0 - X - -", 3, 2, 1, OK, OK, ALARM, OK),
    ("- - - - 0", 3, 2, 2, OK, OK, ALARM, OK),
    ("- - - X -", 3, 2, 2, ALARM, KEPT, ALARM, OK),
]
TREATMENTS = ["missing", "ignore", "breaching", "notBreaching"]


def read(text):
    """Newest first."""
    return [{"0": 0.0, "X": 1.0, "-": None}[sign] for sign in reversed(text.split())]


def state_of(values, periods, to_alarm, treatment):
    return judge(values, periods, to_alarm, lambda value: value > 0.5, Treatment(treatment)).state


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[2]} of {row[1]}")
def test_the_documented_rows(row):
    text, periods, to_alarm, filled, *states = row
    found = [state_of(read(text), periods, to_alarm, treatment) for treatment in TREATMENTS]
    assert found == states
    verdict = judge(read(text), periods, to_alarm, bool, Treatment.BREACHING)
    assert verdict.filled == filled


@pytest.mark.parametrize("text", ["- - - - X", "- - - X -"])
def test_a_premature_alarm_is_avoided(text):
    assert state_of(read(text), 3, 3, "missing") is KEPT
    assert state_of(read(text), 3, 3, "breaching") is ALARM


def slow_state(values, periods, to_alarm, treatment):
    """The same rules in other words: by the text of the guide, one step at a time."""
    real = [(age, value) for age, value in enumerate(values, 1) if value is not None]
    if len(real) >= periods:
        newest = sorted(real)[:periods]
        crossing = [1 for _, value in newest if value > 0.5]
        return ALARM if sum(crossing) >= to_alarm else OK
    if treatment in ("breaching", "notBreaching"):
        filler = 1.0 if treatment == "breaching" else 0.0
        padded = [value for _, value in real] + [filler] * (periods - len(real))
        return ALARM if sum(value > 0.5 for value in padded) >= to_alarm else OK
    crossing = [age for age, value in real if value > 0.5]
    fine = [age for age, value in real if value <= 0.5]
    if len(crossing) >= to_alarm:
        return ALARM
    if fine:
        return OK
    if treatment == "ignore":
        return KEPT
    if not crossing:
        return UNKNOWN
    return ALARM if max(crossing) >= to_alarm else KEPT


def test_random_series_are_judged_as_by_a_slow_independent_implementation():
    chance = random.Random(17)
    seen = set()
    for _ in range(20_000):
        periods = chance.randint(1, 6)
        to_alarm = chance.randint(1, periods)
        holes = chance.choice([0, 0.2, 0.5, 0.9, 1])
        values = [
            None if chance.random() < holes else chance.choice([0.0, 1.0])
            for _ in range(periods + 2)
        ]
        treatment = chance.choice(TREATMENTS)
        expected = slow_state(values, periods, to_alarm, treatment)
        assert state_of(values, periods, to_alarm, treatment) == expected, (
            values,
            periods,
            to_alarm,
            treatment,
        )
        seen.add((treatment, expected))
    assert len(seen) == 4 + 3 + 2 + 2
