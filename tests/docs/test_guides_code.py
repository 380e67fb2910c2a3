"""The code of the guides to events and notifications does what it says, as it stands there."""

import re
from pathlib import Path

import pytest

from support.server import Server

GUIDES = Path(__file__).parents[2] / "docs" / "howto"


@pytest.mark.parametrize(
    ("guide", "printed", "secret"),
    [
        ("events.md", 'True\n"There are 7 now"\n', r"whsec_.+"),
        ("notifications.md", "Completed\n", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ],
)
def test_a_guide_s_code_runs(
    guide: str,
    printed: str,
    secret: str,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    path = GUIDES / guide
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, path, "exec"), names)
    assert capsys.readouterr().out == printed
    assert re.fullmatch(secret, str(names["secret"]))
