"""Runs scripts in processes that have what most of them import already: that is most of their time.

Each gets a fork of its own (`forks.py`).
"""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.forks import FORKING, WARM, be_warm

END_TIMEOUT_SECONDS = 40
PLAIN = str(Path(__file__).with_name("plain"))
"""As PYTHONPATH, for processes that import xgboost by themselves: it finds neither scikit-learn nor
pandas then, without which it works as well, and whose import takes most of its own."""


def run_script(
    script: Path, arguments: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> "subprocess.CompletedProcess[str]":
    """As `python3 script arguments` in that environment."""
    be_warm()
    command = [str(script), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder, "stdout"), Path(folder, "stderr")
        process = FORKING.Process(target=_become, args=(command, dict(environment), *outputs))
        process.start()
        process.join(timeout_seconds)
        if process.exitcode is None:
            # As Ctrl-C: what it has started ends with it.
            os.kill(process.pid, signal.SIGINT)
            process.join(END_TIMEOUT_SECONDS)
            process.kill()
            process.join()
        texts = [output.read_text() for output in outputs]
        return subprocess.CompletedProcess(command, process.exitcode, *texts)


def _become(command: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    assert WARM in sys.modules, "what is forked is not warm"
    for descriptor, path in ((1, stdout), (2, stderr)):
        with path.open("wb") as output:
            os.dup2(output.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    script = command[0]
    sys.argv[:] = command
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.stdout.flush()
