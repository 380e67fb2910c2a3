"""The code of the guide to events does what it says, as it stands there."""

import re
from pathlib import Path

import pytest

from support.server import Server

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "events.md"


def test_the_guide_s_code_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, GUIDE, "exec"), names)
    assert capsys.readouterr().out == 'True\n"There are 7 now"\n'
    assert str(names["secret"]).startswith("whsec_")
