"""Which model servers fork their workers."""

import os
import signal
import sys
from pathlib import Path

import pytest

from sagehen.containers.modelserver import forked
from sagehen.containers.modelserver.environment import THREAD_VARIABLES
from sagehen.containers.modelserver.workers.preforked import (
    ForkedProcess,
    fork_workers,
    why_not_forked,
)

ONE_THREAD = {"SAGEMAKER_MODEL_SERVER_WORKERS": "64"}
"""More workers than cores have a thread each."""


@pytest.fixture
def as_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process seems to come from a fork server that has imported `numpy`."""
    loaded = dict.fromkeys(THREAD_VARIABLES, "1")
    modules = dict.fromkeys(sys.path, frozenset({"numpy"}))
    made = forked._Origin(loaded, {}, modules, (0, 0), (0, 0))
    monkeypatch.setattr(forked, "_origin", made)
    for name in loaded:
        monkeypatch.setenv(name, "1")


def test_a_server_that_was_started_anew_forks_none(environment, put_script) -> None:
    put_script(inference="")
    assert why_not_forked(environment("python")) == "the server was not forked"
    assert fork_workers(environment("python")) == []


def test_a_script_needs_workers(environment, put_script, as_forked) -> None:
    assert why_not_forked(environment("sklearn", **ONE_THREAD)) == "there is no script"
    put_script(inference="")
    assert why_not_forked(environment("sklearn", **ONE_THREAD)) is None


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"SAGEMAKER_MULTI_MODEL": "true"}, "the models are not known yet"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "CUDA must be loaded for one GPU"),
        ({"OMP_NUM_THREADS": "3"}, "workers have another number of threads"),
        ({"SAGEMAKER_PROGRAM": "missing.py"}, "SAGEMAKER_PROGRAM names missing.py"),
    ],
)
def test_some_workers_start_in_the_ordinary_way(
    environment, put_script, as_forked, variables, reason
) -> None:
    put_script(inference="")
    found = why_not_forked(environment("sklearn", **ONE_THREAD, **variables))
    assert found is not None
    assert found.startswith(reason)


def test_a_script_with_packages_of_its_own_has_a_new_process(
    environment, put_script, base_dir: Path, as_forked
) -> None:
    put_script(inference="")
    server = environment("sklearn", **ONE_THREAD)
    (base_dir / "model" / "code" / "numpy").mkdir()
    assert why_not_forked(server) == "the script's folder has a module numpy of its own"
    (base_dir / "model" / "code" / "requirements.txt").write_text("x")
    assert why_not_forked(server) == "there is a requirements.txt"


def test_whoever_has_the_number_of_an_ended_process_gets_no_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = []
    monkeypatch.setattr(os, "kill", lambda *signalled: sent.append(signalled))
    monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, 0))
    process = ForkedProcess(4711)
    process.send_signal(signal.SIGABRT)
    assert process.wait() == 0
    process.send_signal(signal.SIGKILL)
    assert sent == [(4711, signal.SIGABRT)]
