"""Opens the object store on first use."""

import threading
from typing import TYPE_CHECKING, Any, cast

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.services.s3.storage.store import ObjectStore

if TYPE_CHECKING:
    from sagehen.base.settings import Settings
    from sagehen.state.database import Database

__all__ = ["LateObjectStore"]


class LateObjectStore:
    """Delays loading the database (14 MiB) until an agent first fetches something."""

    def __init__(self, settings: "Settings", home: Home, clock: Clock) -> None:
        self._settings = settings
        self._home = home
        self._clock = clock
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._store: ObjectStore | None = None

    def as_store(self) -> ObjectStore:
        return cast("ObjectStore", self)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for attributes the class lacks; any thread may be first.
        return getattr(self._opened(), name)

    def _opened(self) -> ObjectStore:
        with self._lock:
            if self._store is None:
                from sagehen.services.s3.storage.opening import open_object_store
                from sagehen.state.database import Database

                self._database = Database(self._settings.state_url)
                self._store = open_object_store(
                    self._settings, self._home, self._database, self._clock
                )
            return self._store
