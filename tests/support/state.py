"""The state and the settings of unit tests: made hundreds of times, so made cheaply."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Dialect, event

from sagehen.base.settings import Settings
from sagehen.state.database import Database

__all__ = ["copied_state", "opened_state", "settings_of"]

_DIALECTS: list[Dialect] = []
_COMPILED: dict[Any, Any] = {}
"""SQL of the statements that some test has run: by itself each engine would compile all anew."""
_DEFAULTS = Settings()


@contextmanager
def copied_state(empty: Path, path: Path) -> Iterator[Database]:
    """A state of a test's own at `path`, a copy of the file `empty`.

    It is not kept safe from the loss of power, which costs most of the time of small writes.
    """
    shutil.copyfile(empty, path)
    with opened_state(path) as database:
        yield database


@contextmanager
def opened_state(path: Path) -> Iterator[Database]:
    """A state that is there; what one of these has compiled, the others need not."""
    database = Database(f"sqlite:///{path}")
    event.listen(database.engine, "connect", _need_not_last)
    if not _DIALECTS:
        with database.read():
            pass  # The first connection tells its engine's dialect what SQLite is able to do.
        _DIALECTS.append(database.engine.dialect)
    database.engine.dialect = _DIALECTS[0]  # It is part of the key of what is compiled.
    database.engine.update_execution_options(compiled_cache=_COMPILED)
    try:
        yield database
    finally:
        database.close()


def _need_not_last(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


def settings_of(home: Path, **changes: Any) -> Settings:
    """The defaults but for `changes`, which are of the right types already."""
    return _DEFAULTS.model_copy(update={"home": home, **changes})
