"""What the tests of several parts share."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def kept() -> Iterator[Callable[[], Counter[str]]]:
    """`kept()` counts, by type, what is ours and only the collector would free."""
    gc.collect()
    gc.freeze()
    gc.disable()
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
