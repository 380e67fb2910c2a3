"""Settings that take effect while the server runs."""

import re
from pathlib import Path

import sagehen
from sagehen.app.reloading import RELOADED, changed_settings
from support.state import settings_of

SOURCE = Path(sagehen.__file__).parent
ELSEWHERE = (
    *("gateway", "agent", "containers", "http1", "link", "placement", "state"),
    *("app/supervisor.py", "app/cluster.py", "app/leaving.py"),
    *("app/roles/gateway.py", "app/roles/agent.py", "app/roles/cluster_agent.py"),
)
"""what does not start again with control"""


def test_only_what_control_alone_reads_is_reloaded():
    read = set()
    for name in ELSEWHERE:
        path = SOURCE / name
        for file in [path] if path.is_file() else path.rglob("*.py"):
            read |= set(re.findall(r"settings\.(\w+)", file.read_text()))
    assert {"idle_timeout_seconds", "launcher"} <= read
    assert not read & RELOADED


def test_what_cannot_take_effect_is_told_apart(tmp_path):
    before = settings_of(tmp_path)
    after = settings_of(tmp_path, max_topics=7, max_connections=9, region="eu-west-1")
    assert changed_settings(before, after) == (["max_topics"], ["max_connections", "region"])
    assert changed_settings(before, before) == ([], [])
