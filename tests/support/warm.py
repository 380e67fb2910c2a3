"""Runs scripts in processes that have what most of them import already: that is most of their time.

A fresh process imports it once, and each script gets a fork of that one, in which nothing has been
computed yet. What a script does not import itself it still cannot name.
"""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

IMPORTED = ["boto3", "xgboost", "sklearn.datasets", "sklearn.model_selection", "sagemaker"]
"""xgboost and scikit-learn bring numpy, scipy and pandas."""
END_TIMEOUT_SECONDS = 40
PLAIN = str(Path(__file__).with_name("plain"))
"""As PYTHONPATH, for processes that import xgboost by themselves: it finds neither scikit-learn nor
pandas then, without which it works as well, and whose import takes most of its own."""


def run_script(
    script: Path, arguments: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> "subprocess.CompletedProcess[str]":
    """As `python3 script arguments` in that environment."""
    _be_warm()
    warm = multiprocessing.get_context("forkserver")
    command = [str(script), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder, "stdout"), Path(folder, "stderr")
        process = warm.Process(target=_become, args=(command, dict(environment), *outputs))
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


@functools.cache
def _be_warm() -> None:
    """Start what is forked. It does not look where this process would (Python 3.11), and is silent
    of what it does not find; so it is told by the environment."""
    multiprocessing.set_forkserver_preload([__name__, *IMPORTED, "support.warm_models"])
    with patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
        multiprocessing.forkserver.ensure_running()


def _become(command: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    assert "support.warm_models" in sys.modules, "what is forked is not warm"
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
