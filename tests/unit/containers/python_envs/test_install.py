"""What pip is told, without running it."""

from pathlib import Path

import pytest

from sagehen.containers.python_envs import install as module
from sagehen.containers.python_envs.install import EnvironmentSpec, Installer, RequirementsError


@pytest.fixture
def code(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").touch()
    return code


def test_requirements_and_a_package_are_installed_together(code: Path) -> None:
    command = module._pip("python", EnvironmentSpec(code, package=True))
    assert command[:4] == ["python", "-m", "pip", "install"]
    assert command[-3:] == ["-r", str(code / "requirements.txt"), "."]
    (code / "requirements.txt").unlink()
    assert module._pip("python", EnvironmentSpec(code))[-1] == "--disable-pip-version-check"


def test_a_spec_is_named_as_its_user_knows_it(code: Path) -> None:
    assert str(EnvironmentSpec(code)) == "The requirements in code/requirements.txt"
    assert str(EnvironmentSpec(code, package=True)) == "The package in code"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["Collecting a", "ERROR: No matching distribution", "note: more"], "ERROR: No matching"),
        (["Collecting a", "Killed"], "Killed"),
        ([], "pip said nothing"),
        (
            [
                "error: No solution found when resolving dependencies",
                "cause: Because scikit-learn==0.20.0 has no usable wheels, it is so.",
                "hint: Wheels are required",
            ],
            "Because scikit-learn==0.20.0 has no usable wheels",
        ),
        (["× No solution found when resolving dependencies:", "╰─▶ Because a"], "Because a"),
    ],
)
def test_pips_last_error_is_the_reason(lines: list[str], error: str) -> None:
    assert module._last_error(lines).startswith(error)


def test_variables_that_would_install_elsewhere_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    variables = Installer({"PIP_TARGET": "/x", "PIP_INDEX_URL": "/y"}, 1)._variables
    assert "PIP_TARGET" not in variables
    assert variables["PIP_INDEX_URL"] == "/y"
    assert variables["PIP_USER"] == "0"
    assert variables["PIP_NO_CACHE_DIR"] == "1", "the environment itself is the cache"
    assert "PIP_NO_CACHE_DIR" not in Installer({"PIP_CACHE_DIR": "/c"}, 1)._variables


def test_an_environment_that_cannot_be_made_is_named(code: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequirementsError, match="No environment can be made in "):
        Installer({}, 1).install(EnvironmentSpec(code), tmp_path / "file" / "environment")
