"""Fixtures of these tests."""

from support.fixtures.modelserver import (
    as_csv,
    base_dir,
    environment,
    put_model,
    put_script,
    regressor,
    rows,
    serving,
    train,
)
from support.fixtures.modelserver_adapters import as_npy, ask, load_as
from support.fixtures.modelserver_wires import setup

__all__ = [
    "as_csv",
    "as_npy",
    "ask",
    "base_dir",
    "environment",
    "load_as",
    "put_model",
    "put_script",
    "regressor",
    "rows",
    "serving",
    "setup",
    "train",
]
