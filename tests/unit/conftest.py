"""What the tests of several parts share."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagehen.store.database import Database
from sagehen.store.migrate import upgrade


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("empty") / "state.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(empty_state: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "state.db"
    path.write_bytes(empty_state.read_bytes())
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def kept() -> Iterator[Callable[[], Counter[str]]]:
    """`kept()` counts, by type, what is ours and only the collector would free."""
    gc.disable()
    gc.freeze()  # What there is by now is no concern of the test, and would take long to look at.
    gc.set_debug(gc.DEBUG_SAVEALL)

    def count() -> Counter[str]:
        gc.collect()
        found = Counter(
            type(one).__name__
            for one in gc.garbage
            if type(one).__module__.startswith(("sagehen.", "httptools."))
        )
        gc.garbage.clear()
        return found

    yield count
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()
    gc.unfreeze()
