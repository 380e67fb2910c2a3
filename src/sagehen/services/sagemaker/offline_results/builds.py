"""Keeps the stores that endpoints need: builds those that are missing, and removes the others.

Its only memory is the folder: a store is there, whole, or it is built. So a build that was killed
begins anew, and the old store serves until the new one is whole.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from sagehen.base.clock import Clock
from sagehen.base.retry import Backoff
from sagehen.frame.offline_results.store import (
    ResultStore,
    StoreError,
    StoreInfo,
    copy_mark,
    remove_drafts,
)
from sagehen.services.sagemaker.offline_results.building import BuildReport, BuildRequest
from sagehen.services.sagemaker.offline_results.stores import (
    StoreRequest,
    StoreStates,
    family_of,
)

__all__ = ["StoreBuilds"]

log = logging.getLogger(__name__)

BUILDS_AT_ONCE = 2
"""each takes a processor and some 100 MiB"""
MOST_ATTEMPTS = 5
"""of a build, until a creation fails; the build goes on being tried"""
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

Build = Callable[[BuildRequest], Awaitable[BuildReport]]


class StoreBuilds:
    """The stores of one home."""

    def __init__(self, folder: Path, build: Build, clock: Clock) -> None:
        """Looks which stores are there. `build` builds one outside of this process."""
        self.on_change: Callable[[], None] = lambda: None
        """called when a store has been built, or cannot be"""
        self._folder = folder
        self._build = build
        self._clock = clock
        self._ready: dict[str, StoreInfo] = {}
        self._unreadable: set[str] = set()
        """There when this began; each is replaced by a new build, or removed if nobody needs it."""
        self._scan()
        self._failures: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(BUILDS_AT_ONCE)

    @property
    def states(self) -> StoreStates:
        """A copy: other threads read it."""
        return StoreStates(dict(self._ready), dict(self._failures))

    def is_building(self, file: str) -> bool:
        return file in self._running

    def size(self, file: str) -> int:
        """Returns a store's bytes on the disk; 0 if it is gone."""
        try:
            return (self._folder / file).stat().st_size
        except OSError:
            return 0

    def require(self, requests: Sequence[StoreRequest], routed: StoreStates) -> None:
        """Makes the folder hold these stores.

        Args:
            routed: the states by which the routes were published; what serves by them stays.
        """
        required = {request.file: request for request in requests}
        for file in self._running.keys() - required.keys():
            self._running[file].cancel()
        for file in self._failures.keys() - required.keys():
            del self._failures[file]
        waiting = {family_of(file) for file in required if file not in routed.ready}
        for file in (self._ready.keys() | self._unreadable) - required.keys():
            if family_of(file) not in waiting:
                self._remove(file)
        for file, request in required.items():
            is_known = file in self._ready or file in self._failures
            if not is_known and not self.is_building(file) and not self._adopt(file):
                self._start(request)

    async def run(self) -> None:
        """Ends all builds when it is cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            running = list(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _scan(self) -> None:
        """Finds the whole stores, and removes what builds that were killed have left."""
        for path in sorted(self._folder.glob("*.db")):
            try:
                self._ready[path.name] = ResultStore(path).info
            except StoreError as error:
                # It stays: the disk may have failed for now, and its objects may be gone.
                self._unreadable.add(path.name)
                about = {"action": "scan_offline_results"}
                log.warning("%s It is built again where an endpoint needs it.", error, extra=about)
        for path in self._folder.glob("*.db.*"):
            remove_drafts(path.with_suffix(""))

    def _adopt(self, file: str) -> bool:
        """Takes a store that this node has copied from the machine where another control led."""
        path = self._folder / file
        if file in self._unreadable or not path.exists():
            return False
        try:
            self._ready[file] = ResultStore(path).info
        except StoreError:
            return False
        copy_mark(path).unlink(missing_ok=True)
        return True

    def _start(self, request: StoreRequest) -> None:
        task = asyncio.create_task(self._build_until_ready(request))
        self._running[request.file] = task

        def ended(_: object) -> None:
            # A build of the same file may have been started since this one was cancelled.
            if self._running.get(request.file) is task:
                del self._running[request.file]
            self.on_change()

        task.add_done_callback(ended)

    async def _build_until_ready(self, request: StoreRequest) -> None:
        file, backoff = request.file, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        attempts = 0
        while True:
            async with self._slots:
                existing = tuple(sorted(self._ready))
                report = await self._build(
                    BuildRequest(file=file, results=request.results, existing=existing)
                )
            if report.info is not None:
                self._failures.pop(file, None)
                self._unreadable.discard(file)
                self._ready[file] = report.info
                _log_built(request, report.info)
                return
            attempts += 1
            _log_failed(request, report)
            if report.is_final or attempts == MOST_ATTEMPTS:
                self._failures[file] = report.failure
                self.on_change()
            if report.is_final:
                return
            await self._clock.sleep(backoff.next_seconds())

    def _remove(self, file: str) -> None:
        self._ready.pop(file, None)
        self._unreadable.discard(file)
        try:
            (self._folder / file).unlink(missing_ok=True)
        except OSError as error:
            log.warning("A store of offline results stays on the disk: %s", error)


def _log_built(request: StoreRequest, info: StoreInfo) -> None:
    about = {
        "action": "offline_results_built",
        "file": request.file,
        "source": request.results.source,
        "keys": info.keys,
        "rows": info.rows,
    }
    log.info("A store of offline results is ready.", extra=about)
    if info.broken_rows:
        log.warning(
            "%d rows of offline results cannot be read and are left out. The first: %s",
            info.broken_rows,
            info.broken_examples[0],
            extra=about,
        )


def _log_failed(request: StoreRequest, report: BuildReport) -> None:
    about = {"action": "offline_results_failed", "file": request.file}
    log.error("Offline results cannot be used: %s", report.failure, extra=about)
