"""Which containers a fork server may start."""

from dataclasses import replace
from pathlib import Path

import pytest

from sagehen.agent.launchers.forkable import (
    ForkKind,
    fork_kind,
    search_of,
    server_variables,
    why_not_forkable,
)
from sagehen.agent.launchers.launcher import ImagePlan, LaunchPlan, NetworkPlan

PYTHON = "/env/bin/python"
FOLDER = Path("/home/instances/i-1/primary")
VARIABLES = {
    "HF_HOME": server_variables(PYTHON)["HF_HOME"],
    "HOME": str(FOLDER),
    "LANG": "C.UTF-8",
    "PATH": "/env/bin:/bin",
    "PYTHONPATH": f"{FOLDER}/python/lib/python3.11/site-packages",
    "PYTHONUNBUFFERED": "1",
    "SAGEHEN_ADAPTER": "sklearn",
    "SM_MODEL_DIR": "/opt/ml/model",
    "TMPDIR": "/tmp",
}


def plan(**variables: str | None) -> LaunchPlan:
    merged = VARIABLES | variables
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
        command=(PYTHON, "-m", "sagehen.containers.modelserver"),
        environment={name: value for name, value in merged.items() if value is not None},
        folder=FOLDER,
        log=FOLDER / "log",
        log_bytes=2**20,
        own_folder=FOLDER,
    )


def test_a_container_of_the_model_server_may_be_forked() -> None:
    assert fork_kind(plan()) == ForkKind(PYTHON, "sklearn")
    assert why_not_forkable(plan(), ()) is None
    assert search_of(plan()) == [VARIABLES["PYTHONPATH"]]


@pytest.mark.parametrize(
    "changed",
    [
        replace(plan(), command=("serve",), is_command=True),
        replace(plan(), command=(PYTHON, "-m", "another.program")),
        replace(plan(), image=ImagePlan(uri="x", hostname="primary")),
        plan(SAGEHEN_ADAPTER="tensorflow"),
        plan(SAGEHEN_ADAPTER=None),
    ],
)
def test_no_fork_server_can_start_another_program(changed: LaunchPlan) -> None:
    assert fork_kind(changed) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LD_PRELOAD", "/x.so"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONUNBUFFERED", "0"),
        ("LANG", "de_DE.UTF-8"),
        ("TZ", "Europe/Berlin"),
        ("OMP_NUM_THREADS", "2"),
        ("MALLOC_ARENA_MAX", "1"),
        ("TORCH_HOME", "/x"),
        ("HF_HOME", "/x"),
        ("MY_OWN", "1"),
    ],
)
def test_variables_that_are_read_at_the_start_need_a_new_process(name: str, value: str) -> None:
    reason = why_not_forkable(plan(**{name: value}), ())
    assert reason == f"{name} may be read at the start of Python or of a library"


def test_variables_that_are_read_later_do_not() -> None:
    late = {
        "AWS_REGION": "us-west-2",
        "SAGEMAKER_PROGRAM": "x.py",
        "SAGEHEN_SLOTS": "3",
        "PIP_INDEX_URL": "https://example.org",
        "TS_MAX_REQUEST_SIZE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",  # the fork server's own
    }
    assert why_not_forkable(plan(**late), ()) is None


def test_the_user_can_name_variables_that_only_scripts_read() -> None:
    assert why_not_forkable(plan(MY_OWN="1"), {"MY_OWN"}) is None


@pytest.mark.parametrize("name", ["LANG", "PYTHONUNBUFFERED", "HF_HOME"])
def test_what_the_fork_server_has_the_container_needs_too(name: str) -> None:
    assert why_not_forkable(plan(**{name: None}), ()) == f"{name} is not set"


def test_modules_are_searched_in_no_other_folder_than_the_containers() -> None:
    more = plan(PYTHONPATH=f"{VARIABLES['PYTHONPATH']}:/somewhere")
    assert why_not_forkable(more, ()) == "PYTHONPATH names more than its own folder"
    sibling = plan(PYTHONPATH=f"{FOLDER}-2/site")
    assert why_not_forkable(sibling, ()) == "PYTHONPATH names more than its own folder"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(plan(), may_fork=False), "it was forked before, and did not start"),
        (replace(plan(), network=NetworkPlan(outgoing=False)), "it has a network of its own"),
        (replace(plan(), gpus=("0",)), "it has GPUs"),
        (plan(SAGEMAKER_BATCH="true"), "it is a transform job's"),
    ],
)
def test_some_containers_start_in_the_ordinary_way(changed: LaunchPlan, reason: str) -> None:
    assert why_not_forkable(changed, ()) == reason


def test_a_fork_server_has_one_thread_and_nothing_of_the_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    variables = server_variables(PYTHON)
    assert variables["OMP_NUM_THREADS"] == variables["OPENBLAS_NUM_THREADS"] == "1"
    assert "secret" not in variables.values()
