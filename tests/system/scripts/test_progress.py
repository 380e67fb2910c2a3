"""scripts/progress.py: one line while all is well, everything when it is not."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "progress.py"


def progress(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, "Working", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_command_that_succeeds_is_two_lines() -> None:
    done = progress("print('much'); print('more')")
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first == "Working ..."
    assert second.startswith("  done in ")


def test_a_command_that_fails_shows_what_it_printed_and_its_status() -> None:
    done = progress("import sys; print('much'); print('why', file=sys.stderr); sys.exit(3)")
    assert done.returncode == 3
    assert {"much", "why"} <= set(done.stdout.splitlines())
    assert "This failed after " in done.stdout
