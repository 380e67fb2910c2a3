"""Makes a process that was forked, with its framework imported, like one that was just started.

    fork server   prepare(adapter): imports
     └─ fork ──►  renew(variables): environment, random states, temporary names
                  run(module): as `python -m module`
       └─ fork ─► renew, run: a worker process

The fork server never sees a model, user code or a container's variables. Two things are the same in
all processes of one fork server: the addresses of libraries, and the seed of `hash`.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sagehen.base.errors import SagehenError
from sagehen.containers.leftovers import MARK
from sagehen.containers.modelserver.serving.malloc_trim import give_memory_back

__all__ = [
    "FRAMEWORKS",
    "ROOM",
    "exec_anew",
    "is_forked",
    "loaded_with",
    "prepare",
    "renew",
    "run",
    "shadowed_module",
    "why_unforkable",
]

ROOM = "_SAGEHEN_FORK_ROOM"
"""a variable of the fork server, where its children put what others read in /proc/PID/environ"""

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "huggingface": ("torch", "transformers", "transformers.pipelines", "numpy"),
    "lightgbm": ("lightgbm", "joblib", "pandas"),
    "onnx": ("numpy",),
    "python": ("numpy",),
    "pytorch": ("torch", "numpy"),
    "sklearn": (
        "joblib",
        "numpy",
        "pandas",
        "sklearn.cluster",
        "sklearn.compose",
        "sklearn.decomposition",
        "sklearn.ensemble",
        "sklearn.feature_extraction.text",
        "sklearn.impute",
        "sklearn.linear_model",
        "sklearn.model_selection",
        "sklearn.naive_bayes",
        "sklearn.neighbors",
        "sklearn.neural_network",
        "sklearn.pipeline",
        "sklearn.preprocessing",
        "sklearn.svm",
        "sklearn.tree",
    ),
    "xgboost": ("xgboost", "numpy", "pandas"),
}
"""Modules that models and scripts of an adapter import, but none that starts threads then, as
TensorFlow and onnxruntime do."""

_OWN = (
    "sagehen.containers.modelserver.program",
    "sagehen.containers.modelserver.workers.preforked",
    "sagehen.containers.modelserver.workers.serving",
)
_MARKS = ("SAGEHEN_BASE_DIR", MARK)
"""by which the agent and the model server find a container's processes"""
_ARGUMENTS_START, _ARGUMENTS_END, _ENVIRONMENT_START = 45, 46, 47
"""indices in /proc/PID/stat, after the name"""
_MODULE_FILES = (".py", ".so", ".pyc")


@dataclass(frozen=True)
class _Origin:
    """The fork server, as its children need to know it."""

    variables: Mapping[str, str]
    """its environment before the imports"""
    set_by_imports: Mapping[str, str]
    modules: Mapping[str, frozenset[str]]
    """top-level modules by the folder of `sys.path` in which they were found"""
    room: tuple[int, int]
    """address and bytes of ROOM's text in the environment"""
    title: tuple[int, int]
    """address and bytes of the command line"""


_origin: _Origin | None = None
_variables: dict[str, str] = {}
"""of this process, as `renew` was given them"""


def is_forked() -> bool:
    return _origin is not None


def prepare(adapter: str) -> None:
    """Imports the model server and all that `adapter` may need and that is installed."""
    global _origin
    import tempfile

    room, title = _find_areas()
    os.environ.pop(ROOM, None)
    before = dict(os.environ)
    for name in _OWN:
        importlib.import_module(name)
    from sagehen.containers.modelserver.adapters import ADAPTERS

    importlib.import_module(ADAPTERS[adapter])
    for name in FRAMEWORKS[adapter]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if adapter == "xgboost":
        from sagehen.containers.modelserver.adapters.xgboost.library import find_library

        with contextlib.suppress(SagehenError):
            find_library()
    if (ssl := sys.modules.get("_ssl")) is not None:
        ssl.RAND_bytes(1)  # makes its state, which takes 20 ms
    added = {
        name: value
        for name, value in os.environ.items()
        # Not of this process's own folder: it is made up again when it is needed.
        if before.get(name) != value and not value.startswith(tempfile.gettempdir())
    }
    _origin = _Origin(before, added, _found_modules(), room, title)
    give_memory_back()
    # A collection would write to the pages of all these objects, and so copy them in each child.
    gc.freeze()


def why_unforkable(known_descriptors: Iterable[int]) -> str | None:
    """Returns why a fork of this process would not be a whole and separate process."""
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"{threads - 1} threads were started by the imports"
    with open("/proc/self/maps") as maps:
        for line in maps:
            _, rights, *rest = line.split(None, 5)
            if rights.startswith("rw") and rights.endswith("s"):
                return f"memory is shared by writing: {rest[-1].strip()}"
    opened = {int(name) for name in os.listdir("/proc/self/fd")} - {*known_descriptors}
    for descriptor in sorted(opened):
        with contextlib.suppress(OSError):  # that of the listing itself is closed
            return f"a file was opened by the imports: {os.readlink(f'/proc/self/fd/{descriptor}')}"
    return None


def loaded_with(variables: Mapping[str, str], names: Iterable[str]) -> bool:
    """Whether libraries were loaded with these values, where `variables` have them at all."""
    assert _origin is not None
    loaded = _origin.variables
    return all(variables.get(name, loaded.get(name)) == loaded.get(name) for name in names)


def renew(variables: Mapping[str, str], search: Sequence[str] | None = None) -> None:
    """Gives a child its own environment and state; call it first.

    Args:
        search: the first folders of `sys.path`, instead of the fork server's first.
    """
    assert _origin is not None
    _variables.clear()
    _variables.update(variables)
    os.environ.clear()
    os.environ.update(variables)
    for name, value in _origin.set_by_imports.items():
        os.environ.setdefault(name, value)
    _write(_origin.room, [f"{name}={variables[name]}" for name in _MARKS if name in variables])
    if search is not None:
        sys.path[:1] = search
    importlib.invalidate_caches()
    _renew_randomness()
    _renew_paths()
    # As Python sets them at its start.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _renew_randomness() -> None:
    """`random` renews itself after a fork. PyTorch's seed is a constant in every new process."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (ssl := sys.modules.get("_ssl")) is not None:
        # OpenSSL tells a fork by its PID, which may be equal in two namespaces.
        ssl.RAND_add(os.urandom(32), 32.0)
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)
    if (locks := sys.modules.get("multiprocessing.synchronize")) is not None:
        locks.SemLock._rand = type(locks.SemLock._rand)()


def _renew_paths() -> None:
    if (tempfile := sys.modules.get("tempfile")) is not None:
        vars(tempfile).update(tempdir=None, _name_sequence=None)
    if (site := sys.modules.get("site")) is not None:
        vars(site).update(USER_BASE=None, USER_SITE=None)
        site.getusersitepackages()


def run(module: str, *arguments: str) -> NoReturn:
    """Runs a module as `python -m` does, and ends the process."""
    assert _origin is not None
    sys.argv = ["-m", *arguments]
    sys.orig_argv = [sys.executable, "-m", module, *arguments]
    _write(_origin.title, sys.orig_argv)
    status = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exec_anew(module: str, *arguments: str) -> NoReturn:
    """Replaces this process by a new one with its first environment. Raises OSError."""
    words = [sys.executable, "-m", module, *arguments]
    os.execve(sys.executable, words, _variables)


def shadowed_module(more: Sequence[str] = ()) -> str | None:
    """Returns an imported module that a new process would find in another folder: in one that now
    precedes its own in `sys.path`, or in one of `more`."""
    assert _origin is not None
    known = frozenset[str]().union(*_origin.modules.values())
    found: set[str] = set()
    for folder in [*more, *sys.path]:
        if folder in _origin.modules:
            found |= _origin.modules[folder]
        elif shadowed := known.intersection(_names_in(folder)) - found:
            return min(shadowed)
    return None


def _names_in(folder: str) -> Iterator[str]:
    """Yields the modules and packages in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            name, dot, _ = entry.name.partition(".")
            if entry.name.endswith(_MODULE_FILES) or (not dot and entry.is_dir()):
                yield name


def _found_modules() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {folder: set() for folder in sys.path[1:]}
    for name, module in tuple(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if "." in name or spec is None or not spec.has_location or not spec.origin:
            continue  # built in, or not in one folder
        file = os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin
        found.setdefault(os.path.dirname(file), set()).add(name)
    return {folder: frozenset(names) for folder, names in found.items()}


def _find_areas() -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns address and bytes of the room in the environment, and of the command line."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    with open("/proc/self/environ", "rb") as file:
        environment = file.read()
    first, last = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    at = environment.find(f"{ROOM}=".encode())
    if at < 0:
        return (0, 0), (first, last - first)
    end = environment.find(b"\0", at)
    return (int(fields[_ENVIRONMENT_START]) + at, end - at), (first, last - first)


def _write(area: tuple[int, int], texts: Sequence[str]) -> None:
    """Writes texts with a zero after each; zeros fill the rest."""
    address, size = area
    if size > 0:
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)[: size - 1]
        ctypes.memmove(address, data.ljust(size, b"\0"), size)
