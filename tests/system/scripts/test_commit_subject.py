"""The hook for commit messages."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "commit_subject.py"


def run(tmp_path: Path, message: str) -> "subprocess.CompletedProcess[str]":
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    command = [sys.executable, str(SCRIPT), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message", ["x" * 72, "Short\n\nA body.\n", "# a comment of git\nShort\n# another"]
)
def test_good_messages_pass(tmp_path: Path, message: str) -> None:
    assert run(tmp_path, message).returncode == 0


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("x" * 73, "has 73 characters, and at most 72"),
        ("\n\nOnly a body", "is empty"),
        ("# only comments\n", "is empty"),
        ("Short\nbody at once", "second line is not empty"),
    ],
)
def test_bad_messages_are_refused_with_advice(tmp_path: Path, message: str, fault: str) -> None:
    done = run(tmp_path, message)
    assert done.returncode == 1
    assert fault in done.stderr
