"""The rules of composite alarms."""

import itertools

import pytest

from sagehen.services.monitoring.alarms.composite.rules import parse_rule
from sagehen.services.monitoring.alarms.records import AlarmState
from sagehen.wire.errors import AwsError

STATES = {
    "a": AlarmState.ALARM,
    "o": AlarmState.OK,
    "i": AlarmState.INSUFFICIENT_DATA,
    "with (odd), name": AlarmState.ALARM,
    "two words": AlarmState.ALARM,
}
ARN = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALARM(a)", True),
        ("ALARM(o)", False),
        ("OK(o)", True),
        ("INSUFFICIENT_DATA(i)", True),
        ("INSUFFICIENT_DATA(gone)", True),
        ("TRUE", True),
        ("FALSE", False),
        ("NOT ALARM(a)", False),
        ("NOT NOT ALARM(a)", True),
        ("NOT (ALARM(a) AND OK(o))", False),
        ("TRUE OR FALSE AND FALSE", True),
        ("(TRUE OR FALSE) AND FALSE", False),
        ("NOT FALSE AND FALSE", False),
        ('ALARM("a") AND ALARM ( "with (odd), name" )', True),
        ("ALARM( two words )", True),
        (f"ALARM({ARN}a)", True),
        (f'OK("{ARN}o")\n  AND TRUE', True),
        ("AT_LEAST(1, ALARM, (a, o, i))", True),
        ("AT_LEAST(2, ALARM, (a, o, i))", False),
        ("AT_LEAST(2, NOT ALARM, (a, o, i))", True),
        ("AT_LEAST(50%, OK, (a, o, i))", False),
        ('AT_LEAST(33%, OK, (a, "o", i)) AND TRUE', True),
    ],
)
def test_rules(text, expected):
    assert parse_rule(text).holds(STATES) is expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "leading or trailing whitespace"),
        (" TRUE", "leading or trailing whitespace"),
        ("()", "Error in AlarmRule [Unsupported token ')' at char 1 must be: '(', NOT, AT_LEAST"),
        ("ALARM(a) AND", "Unsupported token 'end of the rule'"),
        ("ALARM(a) ALARM(b)", "Unsupported token 'ALARM' at char 9 must be: AND, OR or the end"),
        ("ALARM()", "an alarm's name or ARN"),
        ("ALARM(a", "must be: ')'"),
        ('ALARM("a)', "an alarm's name or ARN"),
        ("alarm(a)", "Unsupported token 'a'"),
        ("ALARMS(a)", "Unsupported token 'ALARMS'"),
        ("AT_LEAST(ALARM, (a))", "a number or a percentage"),
        ("AT_LEAST(2, ALARM, (a))", "AT_LEAST asks for 2 of 1 alarms"),
        ("AT_LEAST(0%, ALARM, (a))", "AT_LEAST asks for 0% of 1 alarms"),
        ("TRUE AND " * 500 + "TRUE", "more than 500 elements"),
        ("(" * 300 + "TRUE" + ")" * 300, "nested more than 100"),
        ("NOT " * 2000 + "TRUE", "more than 500 elements"),
        (" OR ".join(f"ALARM(a{number})" for number in range(101)), "more than 100 alarms"),
    ],
)
def test_what_is_no_rule(text, words):
    with pytest.raises(AwsError) as caught:
        parse_rule(text)
    assert caught.value.code == "ValidationError"
    assert words in caught.value.message


def test_names_come_once_and_without_their_arn():
    rule = parse_rule(f"ALARM(b) OR OK({ARN}a) OR AT_LEAST(1, OK, (b, c))")
    assert rule.names == ("b", "a", "c")


def test_all_small_rules_are_as_pythons_own():
    names = ["x", "y", "z"]
    for first, second in itertools.product(("AND", "OR"), repeat=2):
        for signs in itertools.product(("", "NOT "), repeat=3):
            text = f"{signs[0]}ALARM(x) {first} {signs[1]}ALARM(y) {second} {signs[2]}ALARM(z)"
            rule = parse_rule(text)
            for values in itertools.product((False, True), repeat=3):
                python = text.replace("AND", "and").replace("OR", "or").replace("NOT", "not")
                for name, value in zip(names, values, strict=True):
                    python = python.replace(f"ALARM({name})", str(value))
                states = {
                    name: AlarmState.ALARM if value else AlarmState.OK
                    for name, value in zip(names, values, strict=True)
                }
                assert rule.holds(states) is eval(python)
