"""Paths below the base, the configuration, and the file `failure`."""

from pathlib import Path

import pytest

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.folders import Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    folders = Folders(str(tmp_path))
    Path(folders.config).mkdir(parents=True)
    return folders


def test_a_users_path_below_opt_ml_is_below_the_base(folders: Folders, tmp_path: Path) -> None:
    assert folders.local("/opt/ml/input/code") == f"{tmp_path}/input/code"
    assert folders.local("/opt/mlx") == "/opt/mlx"
    assert folders.channel("train") == f"{tmp_path}/input/data/train"


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "cannot be read"), ("{", "cannot be read"), ("[]", "not a JSON")]
)
def test_a_configuration_that_cannot_be_read_is_named(
    folders: Folders, text: str | None, reason: str
) -> None:
    if text is not None:
        Path(folders.config, "a.json").write_text(text)
    with pytest.raises(CannotRun, match=f"/opt/ml/input/config/a.json .*{reason}"):
        folders.read_config("a.json")


def test_a_configuration_is_an_object(folders: Folders) -> None:
    Path(folders.config, "a.json").write_text('{"a": 1}')
    assert folders.read_config("a.json") == {"a": 1}


def test_the_scripts_own_failure_stays(folders: Folders) -> None:
    folders.write_failure("ours\ud800")
    assert Path(folders.failure).read_text() == "ours?"
    folders.write_failure("later")
    assert Path(folders.failure).read_text() == "ours?"


def test_a_failure_that_cannot_be_written_is_in_the_log_alone(folders: Folders) -> None:
    Path(folders.output).write_text("a file")
    folders.write_failure("ours")
    assert Path(folders.output).read_text() == "a file"
