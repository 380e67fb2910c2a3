"""Test files with pytest's own asserts, made once for all workers of pytest-xdist.

By itself each worker makes those of all files at the same time, some six seconds of a processor in
each, before any of them finds what another has made.
"""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key

__all__ = ["rewrite_once"]

_FILES_AT_ONCE = 8


def rewrite_once(config: pytest.Config) -> None:
    """Make what is not there yet, in a process for each processor, before there are workers."""
    if not config.getoption("numprocesses", None) or assertstate_key not in config.stash:
        return
    missing = [path for path in _test_files(config) if not _cache(path).exists()]
    if missing:
        # Forked: what is needed of pytest's configuration cannot be sent to another process.
        with multiprocessing.get_context("fork").Pool(os.cpu_count(), _begin, (config,)) as pool:
            pool.map(_rewrite, missing, chunksize=_FILES_AT_ONCE)


_CONFIG: list[pytest.Config] = []


def _begin(config: pytest.Config) -> None:
    _CONFIG.append(config)


def _test_files(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        chosen = Path(config.invocation_params.dir, argument.partition("::")[0])
        if chosen.is_dir():
            yield from chosen.rglob("test_*.py")
            yield from chosen.rglob("conftest.py")


def _cache(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def _rewrite(path: Path) -> None:
    """As the hook does it that imports test files (pytest has no public name for it)."""
    cache = _cache(path)
    rewrite.try_makedirs(cache.parent)
    source, code = rewrite._rewrite_test(path, _CONFIG[0])
    rewrite._write_pyc(_CONFIG[0].stash[assertstate_key], code, source, cache)
