"""Installed packages that are first imported while a model's code is being loaded."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sagehen.containers.modelserver.adapters.script.code_space import CodeSpace


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package whose parts import each other, early and late."""
    folder = tmp_path / "site" / "installed_kit"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import part\n")
    (folder / "part.py").write_text(
        "def late():\n    from .other import WORD\n    return WORD\n",
    )
    (folder / "other.py").write_text("WORD = 'said'\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield "installed_kit"
    for name in [name for name in sys.modules if name.startswith("installed_kit")]:
        del sys.modules[name]


def model(folder, text):
    folder.mkdir()
    (folder / "inference.py").write_text(text)
    return CodeSpace(folder)


def test_its_parts_do_not_become_the_models(tmp_path, package):
    model(tmp_path / "a", f"import {package}\n").load("inference")
    part = sys.modules[f"{package}.part"]
    assert type(part.__loader__).__module__ == "_frozen_importlib_external"


def test_a_call_imports_it_though_another_model_is_being_loaded(tmp_path, package):
    """As the default input_fn does with numpy: it waited until all models were loaded."""
    text = f"def call():\n    import {package}\n    return {package}.part.late()\n"
    module = model(tmp_path / "a", text).load("inference")
    other = model(tmp_path / "b", "")
    with ThreadPoolExecutor(1) as pool, other.active():
        assert pool.submit(module.call).result(120) == "said"
