"""What a forked process finds out about the modules that it was forked with."""

import subprocess
import sys
from pathlib import Path

import pytest

from sagehen.containers.modelserver import forked


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fork server that has imported `numpy` and `queue` from the returned folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    modules = {str(folder): frozenset({"numpy", "queue"})}
    made = forked._Origin({"OMP_NUM_THREADS": "1"}, {}, modules, (0, 0), (0, 0))
    monkeypatch.setattr(forked, "_origin", made)
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", ["numpy.py", "queue.cpython-311-x86_64-linux-gnu.so", "queue"])
def test_a_module_in_a_folder_before_is_found(origin, code, name: str) -> None:
    assert forked.shadowed_module([str(code)]) is None
    path = code / name
    path.touch() if path.suffix else path.mkdir()
    assert forked.shadowed_module([str(code)]) == name.partition(".")[0]
    sys.path.insert(0, str(code))
    assert forked.shadowed_module() == name.partition(".")[0]


@pytest.mark.parametrize("name", ["inference.py", "numpy.json", "numpy-2.0.dist-info", "other"])
def test_other_files_shadow_nothing(origin, code, name: str) -> None:
    path = code / name
    path.mkdir() if path.suffix in ("", ".0", ".dist-info") else path.touch()
    assert forked.shadowed_module([str(code)]) is None


def test_a_folder_behind_shadows_nothing(origin, code) -> None:
    (code / "numpy.py").touch()
    sys.path.append(str(code))
    sys.path.append(str(code / "missing"))
    assert forked.shadowed_module() is None


def test_threads_that_were_not_loaded_need_a_new_process(origin) -> None:
    names = ("OMP_NUM_THREADS",)
    assert forked.loaded_with({}, names)
    assert forked.loaded_with({"OMP_NUM_THREADS": "1"}, names)
    assert not forked.loaded_with({"OMP_NUM_THREADS": "2"}, names)


LOOKS = """
import mmap, threading
from sagehen.containers.modelserver.forked import why_unforkable

print(why_unforkable([0, 1, 2]))
with open("/dev/zero") as file:
    print(why_unforkable([0, 1, 2]), why_unforkable([0, 1, 2, file.fileno()]))
shared = mmap.mmap(-1, 4096)
print(why_unforkable([0, 1, 2]))
shared.close()
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
print(why_unforkable([0, 1, 2]))
"""


def test_what_a_fork_would_share_or_miss_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "None",
        "a file was opened by the imports: /dev/zero None",
        "memory is shared by writing: /dev/zero (deleted)",
        "1 threads were started by the imports",
    ]


def test_all_adapters_are_known() -> None:
    from sagehen.containers.modelserver.adapters import ADAPTERS

    assert forked.FRAMEWORKS.keys() == ADAPTERS.keys() - {"tensorflow"}
