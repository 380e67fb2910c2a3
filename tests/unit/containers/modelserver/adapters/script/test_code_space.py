"""The modules of one model, while another one's are being loaded."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import PathFinder

from sagehen.containers.modelserver.adapters.script.code_space import CodeSpace

LATE = """
WORD = "said"

def late():
    import pkg.sub
    from . import sub
    from .sub import WORD
    return (pkg.sub.WORD, sub.WORD, WORD)
"""


def write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_call_imports_what_is_loaded_though_another_model_is_being_loaded(tmp_path):
    folder = write(tmp_path / "a", **{"pkg.__init__": "", "pkg.sub": LATE})
    module = CodeSpace(folder).load("pkg.sub")
    other = CodeSpace(write(tmp_path / "b", inference=""))
    with ThreadPoolExecutor(1) as pool, other.active():
        assert pool.submit(module.late).result(20) == ("said",) * 3


def test_modules_of_a_package_that_are_imported_late_are_the_models_own(tmp_path):
    late = (
        "def word():\n    from . import late\n    from pkg.late import WORD\n    return WORD, late"
    )
    found = []
    for name in ("a", "b"):
        files = {"pkg.__init__": "", "pkg.main": late, "pkg.late": f"WORD = {name!r}"}
        module = CodeSpace(write(tmp_path / name, **files)).load("pkg.main")
        found.append(module.word())
        assert module.word() == found[-1]
    assert [(word, late.WORD) for word, late in found] == [("a", "a"), ("b", "b")]


def test_an_import_that_began_meanwhile_finds_its_module(tmp_path, monkeypatch):
    """As of numpy by another thread: `import` asks one finder after the other, and must not miss
    the last one when the model's own finder goes."""
    active = CodeSpace(write(tmp_path / "a", inference="")).active()

    class EndsTheOther:
        """Stands before the finder of installed modules."""

        @staticmethod
        def find_spec(name, path, target=None):
            if name == "installed_module":
                active.__exit__(None, None, None)

    monkeypatch.syspath_prepend(write(tmp_path / "installed", installed_module="WORD = 1"))
    at = sys.meta_path.index(PathFinder)
    finders = [*sys.meta_path[:at], EndsTheOther, *sys.meta_path[at:]]
    monkeypatch.setattr(sys, "meta_path", finders)
    active.__enter__()
    try:
        assert importlib.import_module("installed_module").WORD == 1
    finally:
        sys.modules.pop("installed_module", None)
    assert sys.meta_path == finders
