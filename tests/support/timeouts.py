"""One thread that ends a run whose test hangs: pytest-timeout would start one for each test."""

import threading
from time import monotonic
from typing import NamedTuple

import pytest
from pytest_timeout import Settings, timeout_timer

__all__ = ["TimeoutThread"]

LOOK_SECONDS = 1.0


class _Running(NamedTuple):
    item: pytest.Item
    settings: Settings
    deadline: float
    """seconds, monotonic"""


class TimeoutThread:
    """Takes the place of pytest-timeout's method `thread`, and calls its `timeout_timer`."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._thread = threading.Thread(target=self._watch, name=__name__, daemon=True)
        self._closed = threading.Event()

    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Settings) -> bool | None:
        if settings.method != "thread":
            return None  # pytest-timeout's own implementation follows
        self._running = _Running(item, settings, monotonic() + settings.timeout)
        if self._thread.ident is None:
            self._thread.start()
        return True

    def pytest_timeout_cancel_timer(self) -> None:
        self._running = None

    def pytest_unconfigure(self) -> None:
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            running = self._running
            if running is not None and monotonic() >= running.deadline:
                timeout_timer(running.item, running.settings)
