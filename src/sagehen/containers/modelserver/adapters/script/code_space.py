"""Isolates each model's code folder: two models may both have an `inference.py`.

While code of one model is imported, module names refer to its folder; afterwards only that model
sees its modules.
"""

import builtins
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["CodeSpace", "import_shared"]

_importing = threading.RLock()
"""Held while `sys.modules` contains one model's modules."""


def import_shared(folder: Path, name: str) -> ModuleType:
    """Extends `sys.path` permanently, for containers with one model."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return importlib.import_module(name)


class CodeSpace:
    """The isolated modules of one code folder."""

    def __init__(self, folder: Path) -> None:
        self._names = frozenset(_module_names(folder))
        self._modules: dict[str, ModuleType] = {}
        self._finder = _Finder(folder, self)
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}

    def load(self, name: str) -> ModuleType:
        with self.active():
            return importlib.import_module(name)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes the folder's modules importable, for this model only."""
        with _importing:
            hidden = self._remove_own()
            sys.modules.update(self._modules)
            # New lists: in one that shrinks, threads that import meanwhile would skip a finder.
            sys.meta_path = [self._finder, *sys.meta_path]
            try:
                yield
            finally:
                sys.meta_path = [one for one in sys.meta_path if one is not self._finder]
                self._modules.update(self._remove_own())
                sys.modules.update(hidden)

    def _remove_own(self) -> dict[str, ModuleType]:
        names = [name for name in tuple(sys.modules) if self._is_own(name)]
        return {name: sys.modules.pop(name) for name in names}

    def _is_own(self, name: str) -> bool:
        return name.partition(".")[0] in self._names

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Replaces `import` inside the folder's modules."""
        if level == 0 and not self._is_own(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        cached = self._cached_module("." * level + name, globals or {}, fromlist or ())
        if cached is not None:
            return cached
        with self.active():
            return builtins.__import__(name, globals, locals, fromlist or (), level)

    def _cached_module(
        self, name: str, globals: Mapping[str, object], fromlist: Sequence[str]
    ) -> ModuleType | None:
        """Avoids the lock: calls must not wait for other models' imports."""
        package = globals.get("__package__")
        if name.startswith("."):
            if not package or not isinstance(package, str):
                return None
            name = resolve_name(name, package)
        module = self._modules.get(name)
        if module is None or not all(hasattr(module, attribute) for attribute in fromlist):
            return None
        return module if fromlist else self._modules.get(name.partition(".")[0])


def _module_names(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            yield path.stem


class _Finder:
    def __init__(self, folder: Path, space: CodeSpace) -> None:
        self._space = space
        self._files = self._finder(str(folder))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None:
            spec = self._files.find_spec(fullname)
            # A folder without code would hide installed packages.
            return spec if spec is not None and spec.loader is not None else None
        if not self._space._is_own(fullname):
            return None  # part of an installed package
        for folder in path:
            spec = self._finder(folder).find_spec(fullname)
            if spec is not None:
                return spec
        return None

    def _finder(self, folder: str) -> FileFinder:
        details: Any = (self._loader, [".py"])
        return FileFinder(folder, details)

    def _loader(self, fullname: str, path: str) -> SourceFileLoader:
        return _Loader(fullname, path, self._space)


class _Loader(SourceFileLoader):
    """Runs a module with its CodeSpace's `import`."""

    def __init__(self, fullname: str, path: str, space: CodeSpace) -> None:
        super().__init__(fullname, path)
        self._space = space

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._space.builtins
        super().exec_module(module)
