"""The one form of times and tables."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sagehen.app.commands.output import json_text, print_table, time_text

MOMENT = datetime(2026, 11, 24, 3, 48, 20, 500_000, tzinfo=UTC)
TEXT = "2026-11-24T03:48:20.500Z"


@pytest.mark.parametrize(
    "moment",
    [MOMENT, MOMENT.astimezone(timezone(timedelta(hours=2))), MOMENT.timestamp()],
    ids=["UTC", "another zone", "seconds since the epoch"],
)
def test_a_time_has_one_form(moment: datetime | float) -> None:
    assert time_text(moment) == TEXT
    value = {"at": moment, "x": [{"created_at": moment}]}
    assert json.loads(json_text(value)) == {"at": TEXT, "x": [{"created_at": TEXT}]}


def test_what_is_no_time_stays() -> None:
    value = {"created_at": None, "seconds": 1.5, "ended_at": "2026"}
    assert json.loads(json_text(value)) == value


def test_a_table_cuts_nothing_off(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("Node", "State"), ("n" * 200, "ready")])
    assert capsys.readouterr().out == f"Node{' ' * 196}  State\n{'n' * 200}  ready\n"
