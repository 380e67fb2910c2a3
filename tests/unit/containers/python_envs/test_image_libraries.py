"""Which Python gets an image's libraries, without installing any."""

import sys
import tomllib
from pathlib import Path

import pytest

import sagehen
from sagehen.containers.python_envs import image_libraries as module
from sagehen.containers.python_envs.image_libraries import ImageLibraries, installed_pythons
from sagehen.containers.python_envs.install import NoWheel, RequirementsError

PYTHONS = {(3, 11): "/p/python3.11", (3, 12): "/p/python3.12", (3, 13): "/p/python3.13"}
SKLEARN = ImageLibraries("skl:1.2-1", "3.8", ("scikit-learn==1.2.1",), ("numpy<2",))


class Run:
    """Makes environments; has no wheels for some Pythons."""

    has_pip_files = True
    no_index = False

    def __init__(self, folder, without=()):
        self.folder = folder
        self.without = without
        self.tried = []
        self.commands = []

    def __call__(self, command, spec, folder=None):
        self.commands.append(command)
        if "venv" in command:
            self.tried.append(next(word for word in command if word.startswith("/p/")))
            (self.folder / "lib" / "python3" / "site-packages").mkdir(parents=True)
        elif self.tried[-1] in self.without:
            raise NoWheel(spec, "No matching distribution found")


@pytest.fixture
def pythons(monkeypatch):
    monkeypatch.setattr(module, "installed_pythons", lambda: PYTHONS)
    monkeypatch.setattr("sys.version_info", (3, 12, 0))
    monkeypatch.setattr(module, "find_uv", lambda: ["uv"])


def make(folder, spec=SKLEARN, **options):
    run = Run(folder, **options)
    spec.make(folder, run)
    return run


def test_the_servers_python_comes_first_where_the_images_is_not_here(pythons, tmp_path):
    assert make(tmp_path / "e").tried == ["/p/python3.12"]
    assert (tmp_path / "e/lib/python3/site-packages/sagehen/base").is_dir()


def test_the_images_own_python_comes_before_the_servers(pythons, tmp_path):
    spec = ImageLibraries("skl:2", "3.13", ("scikit-learn==2",), ())
    assert make(tmp_path / "e", spec).tried == ["/p/python3.13"]


def test_another_python_with_wheels_is_used(pythons, tmp_path):
    run = make(tmp_path / "e", without=["/p/python3.12"])
    assert run.tried == ["/p/python3.12", "/p/python3.11"]


def test_no_python_with_wheels_is_a_reason_that_says_what_to_do(pythons, tmp_path):
    with pytest.raises(RequirementsError) as caught:
        make(tmp_path / "e", without=list(PYTHONS.values()))
    message = str(caught.value)
    assert not (tmp_path / "e").exists()
    for part in ("skl:1.2-1 (scikit-learn 1.2.1)", "has Python 3.8", "3.12, 3.11, 3.13"):
        assert part in message
    assert 'image_versions = "installed"' in message


def test_only_wheels_are_installed_and_by_uv_only_if_pip_has_no_files(pythons, tmp_path):
    install = make(tmp_path / "e").commands[-1]
    assert install[1:3] == ["-m", "pip"]
    assert install[install.index("--only-binary") + 1] == ":all:"
    assert "scikit-learn==1.2.1" in install
    run = Run(tmp_path / "f")
    run.has_pip_files = False
    SKLEARN.make(tmp_path / "f", run)
    assert [command[0] for command in run.commands] == ["uv", "uv"]
    assert "--no-index" not in run.commands[-1]
    run = Run(tmp_path / "g")
    run.has_pip_files, run.no_index = False, True
    SKLEARN.make(tmp_path / "g", run)
    assert "--no-index" in run.commands[-1]


def test_the_key_has_the_requirements_and_the_pythons(pythons, monkeypatch):
    parts = list(SKLEARN.key_parts())
    assert {"scikit-learn==1.2.1", "numpy<2", "(3, 11) /p/python3.11"} <= set(parts)
    monkeypatch.setattr(module, "installed_pythons", dict)
    assert list(SKLEARN.key_parts()) != parts


@pytest.mark.parametrize(
    ("library", "gpu", "package"),
    [
        ("xgboost==3.0.5", False, "xgboost-cpu==3.0.5"),
        ("xgboost==3.0.5", True, "xgboost==3.0.5"),
        ("xgboost==1.7.4", False, "xgboost==1.7.4"),
        ("tensorflow==2.16.1", False, "tensorflow-cpu==2.16.1"),
        ("torch==2.3.0", False, "torch==2.3.0"),
    ],
)
def test_packages_without_cuda_where_there_is_no_gpu(monkeypatch, library, gpu, package):
    monkeypatch.setattr("os.path.exists", lambda path: gpu)
    assert module._for_this_machine(library) == package


def test_pythons_are_found_on_the_path_but_not_old_ones_or_shims(tmp_path, monkeypatch):
    for folder, names in {"bin": ("python3.9", "python3.15"), "shims": ("python3.16",)}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch(mode=0o755)
    monkeypatch.setattr(module, "_FOLDERS", ())
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{tmp_path}/shims:{tmp_path}/none")
    assert set(installed_pythons()) == {(3, 15), sys.version_info[:2]}


def test_the_model_servers_libraries_are_those_of_the_project():
    project = tomllib.loads((Path(sagehen.__file__).parents[2] / "pyproject.toml").read_text())
    assert set(module.OWN_LIBRARIES) <= set(project["project"]["dependencies"])
