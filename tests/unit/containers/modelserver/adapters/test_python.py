"""Models that are nothing but a script."""

from pathlib import Path

import pytest

from sagehen.containers.modelserver.adapters.python import adapter
from sagehen.containers.modelserver.adapters.script.script import ScriptError
from sagehen.containers.modelserver.environment import read_environment


def reason(model_dir: Path, **variables: str) -> str:
    with pytest.raises(ScriptError) as failed:
        adapter(read_environment(variables)).load(model_dir)
    return str(failed.value)


def test_an_archive_without_a_script_says_where_to_put_it(tmp_path: Path) -> None:
    assert reason(tmp_path) == (
        "The model's archive has no code/inference.py: put the script with model_fn and "
        "predict_fn there."
    )


def test_the_scripts_own_name_is_said(tmp_path: Path) -> None:
    found = reason(tmp_path, SAGEMAKER_PROGRAM="predict.py")
    assert found.startswith("SAGEMAKER_PROGRAM names predict.py, which is not in ")


def test_a_script_in_another_place_is_found_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "inference.py").touch()
    assert "inference.py at the top of the archive is not run: move it" in reason(tmp_path)
    (tmp_path / "inference.py").unlink()
    (tmp_path / "mine" / "code").mkdir(parents=True)
    (tmp_path / "mine" / "code" / "inference.py").touch()
    assert "pack from inside the folder (tar -C mine -czf model.tar.gz .)" in reason(tmp_path)


def test_a_script_needs_a_worker(tmp_path: Path) -> None:
    made = adapter(read_environment({}))
    assert not made.needs_worker(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").touch()
    assert made.needs_worker(tmp_path)
