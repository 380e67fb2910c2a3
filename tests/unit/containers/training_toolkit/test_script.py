"""The user's script, where its code comes from, and its command."""

import tarfile
from pathlib import Path

import pytest

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.training_toolkit.hyperparameters import Parameters
from sagehen.containers.training_toolkit.script import (
    ScriptKind,
    TrainingScript,
    bring_code,
    find_script,
    plan_command,
    plan_torchrun,
    torch_variables,
)

HOSTS = {"hosts": ["algo-1", "algo-2"], "current_host": "algo-2"}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(str(tmp_path / "ml"))


@pytest.fixture
def code(folders: Folders) -> Path:
    code = Path(folders.code)
    code.mkdir(parents=True)
    return code


@pytest.mark.parametrize(
    ("name", "beside", "command"),
    [
        ("train.py", None, ["python", "train.py", "--a", "1"]),
        ("run.sh", "setup.py", ["./run.sh", "--a", "1"]),
        ("tool", None, ["./tool", "--a", "1"]),
        ("pkg/train.py", "setup.py", ["python", "-m", "pkg.train", "--a", "1"]),
    ],
)
def test_the_kind_of_a_script_is_its_command(
    name: str, beside: str | None, command: list[str], folders: Folders, code: Path
) -> None:
    (code / name).parent.mkdir(exist_ok=True)
    (code / name).touch()
    if beside is not None:
        (code / beside).touch()
    script = find_script(folders, name, None)
    assert plan_command(script, "python", ["--a", "1"]) == command


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[project]\nname = 'a'\n", ScriptKind.MODULE),
        ("[tool.ruff]\n", ScriptKind.PYTHON),
        ("[", ScriptKind.PYTHON),
    ],
)
def test_a_pyproject_is_a_package_only_with_a_name_or_build(
    text: str, kind: ScriptKind, folders: Folders, code: Path
) -> None:
    (code / "train.py").touch()
    (code / "pyproject.toml").write_text(text)
    assert find_script(folders, "train.py", None).kind is kind


def test_a_missing_script_says_what_there_is(folders: Folders, code: Path) -> None:
    (code / "other.py").touch()
    with pytest.raises(CannotRun, match=r"no script 'train.py' in s3://b/c, which has other.py"):
        find_script(folders, "train.py", "s3://b/c")
    with pytest.raises(CannotRun, match="which is not in the code's folder"):
        find_script(folders, "../train.py", None)


def test_code_of_a_channel_is_copied_or_unpacked(folders: Folders, tmp_path: Path) -> None:
    source = tmp_path / "ml" / "input" / "data" / "code"
    source.mkdir(parents=True)
    (source / "train.py").touch()
    bring_code(folders, "/opt/ml/input/data/code")
    assert Path(folders.code, "train.py").exists()
    Path(folders.code, "train.py").unlink()
    with tarfile.open(source / "code.tar.gz", "w:gz") as archive:
        archive.add(source / "train.py", "unpacked.py")
    bring_code(folders, "/opt/ml/input/data/code/code.tar.gz")
    assert Path(folders.code, "unpacked.py").exists()
    bring_code(folders, None)


@pytest.mark.parametrize(
    ("submitted", "reason"),
    [
        (None, "sagemaker_submit_directory is missing"),
        ("s3://b/c", "s3://b/c .sagemaker_submit_directory. has no files"),
        ("/opt/ml/none", "cannot be unpacked"),
    ],
)
def test_a_job_without_code_says_why(submitted: str | None, reason: str, folders: Folders) -> None:
    with pytest.raises(CannotRun, match=reason):
        bring_code(folders, submitted)


def torchrun(script: TrainingScript, environ: dict[str, str], **own: object) -> list[str]:
    return plan_torchrun(script, "python", Parameters({}, own), HOSTS, environ)


def test_torchrun_names_the_first_host_and_this_ones_rank() -> None:
    script = TrainingScript("train.py", ScriptKind.PYTHON)
    expected = ["--nnodes", "2", "--nproc_per_node", "1", "--master_addr", "algo-1"]
    expected += ["--master_port", "7777", "--node_rank", "1"]
    assert torchrun(script, {}) == ["python", "-m", "torch.distributed.run", *expected]
    own = torchrun(script, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7800", "SM_NUM_GPUS": "4"})
    assert own[own.index("--nproc_per_node") + 1] == "4"
    assert own[own.index("--master_addr") + 1] == "127.0.0.1"
    assert own[own.index("--master_port") + 1] == "7800"


def test_the_number_of_processes_is_the_users_or_refused() -> None:
    script = TrainingScript("train.py", ScriptKind.PYTHON)
    name = "sagemaker_mpi_num_of_processes_per_host"
    assert "3" in torchrun(script, {"SM_NUM_GPUS": "4"}, **{name: 3})
    for count in (True, -1, "2"):
        with pytest.raises(CannotRun, match=f"{name} is {count!r}; it must be a number from 1"):
            torchrun(script, {}, **{name: count})


def test_only_a_python_script_is_distributed() -> None:
    with pytest.raises(CannotRun, match=r"run.sh is a package or a command"):
        torchrun(TrainingScript("run.sh", ScriptKind.COMMAND), {})
    assert torch_variables({"network_interface_name": "lo"})["NCCL_SOCKET_IFNAME"] == "lo"
