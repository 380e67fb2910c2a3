"""The code of the guide to batch transform does what it says, as it stands there."""

import re
from pathlib import Path

import pytest

from support.server import Server

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "batch-transform.md"


def test_the_guide_s_code_runs(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(compile(block, GUIDE, "exec"), names)
    assert capsys.readouterr().out == "Completed\n['701', '702', '703']\n"
