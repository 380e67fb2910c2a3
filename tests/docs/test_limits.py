"""The page of limits names each that there is, and settings that there are."""

import re
from pathlib import Path

from sagehen.agent.instances.limits import InstanceLimit
from sagehen.base.settings import Settings
from sagehen.gateway.client.limits import Limit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| ([^|]+) \|", re.MULTILINE)
ROWS = dict(ROW.findall(PAGE.read_text()))


def test_each_limit_has_a_row():
    assert list(ROWS) == [*Limit, *InstanceLimit]


def test_its_settings_exist():
    named = {name for settings in ROWS.values() for name in re.findall(r"`([a-z_]+)`", settings)}
    assert len(named) > 10
    assert named <= set(Settings.model_fields)
