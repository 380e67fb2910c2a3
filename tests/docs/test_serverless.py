"""The code of the guide to serverless endpoints does what it says, as it stands there."""

import re
from pathlib import Path

import pytest

from support.server import Server

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "serverless.md"


def test_the_guide_s_code_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        # The waiters of boto3 look every 30 s.
        block = block.replace(".wait(", ".wait(WaiterConfig={'Delay': 1}, ")
        exec(compile(block, GUIDE, "exec"), names)
    assert capsys.readouterr().out == "[2, 4]\n2\n[6]\n"
