"""Opens the object store that the settings name, at once or on first use.

Imports SQLAlchemy and obstore on first use only: agents import this module.
"""

import threading
from typing import TYPE_CHECKING, Any, cast

from sagehen.base.clock import Clock
from sagehen.base.errors import SettingError
from sagehen.base.home import Home
from sagehen.services.s3.storage.store import ObjectStore

if TYPE_CHECKING:
    from sagehen.base.settings import Settings
    from sagehen.state.database import Database
    from sagehen.state.group_commit import GroupCommit

__all__ = ["LateObjectStore", "open_object_store", "open_remote"]


def open_object_store(
    settings: "Settings",
    home: Home,
    database: "Database",
    clock: Clock,
    writes: "GroupCommit | None" = None,
) -> ObjectStore:
    """Opens the store; any number of processes may, but only one may sweep.

    Raises SettingError where obstore rejects `object_store_url` or its options.
    """
    from sagehen.services.s3.storage.bookkeeping import Keeping

    remote = open_remote(settings)
    keeping = Keeping(settings.object_trash_seconds, settings.object_grace_seconds)
    if remote is None:
        from sagehen.services.s3.storage.local import LocalObjectStore

        return LocalObjectStore(database, home.objects, clock, writes, keeping)
    from sagehen.services.s3.storage.foreign import ForeignObjectStore

    return ForeignObjectStore(remote, database, home.objects, clock, writes, keeping)


def open_remote(settings: "Settings") -> Any:
    """Returns None where objects are kept in the home. Makes no connection. Raises SettingError."""
    if settings.object_store_url is None:
        return None
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    # obstore answers an option of its HTTP client among those of a store with a Rust panic.
    options: Any = dict(settings.object_store_options)
    client: Any = {name: options.pop(name) for name in [*options] if _is_of_client(name)}
    # obstore needs this for addresses without TLS.
    if any(value.startswith("http://") for value in options.values()):
        client.setdefault("allow_http", "true")
    try:
        return from_url(
            settings.object_store_url, config=options or None, client_options=client or None
        )
    except (BaseError, ValueError, TypeError) as error:
        # Later lines dump obstore's structures.
        reason = str(error).partition("\n")[0]
        names = f" ({', '.join(settings.object_store_options)})" * bool(client or options)
        raise SettingError(f"object_store_url or object_store_options{names}: {reason}") from error


def _is_of_client(name: str) -> bool:
    """Returns whether an option is one of obstore's HTTP client, such as `allow_http`."""
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    options: Any = {name: ""}
    try:
        S3Store("any", client_options=options)
    except BaseError:
        return True  # It is the value that is wrong.
    except ValueError:
        return False
    return True


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
                from sagehen.state.database import Database

                self._database = Database(self._settings.state_url)
                self._store = open_object_store(
                    self._settings, self._home, self._database, self._clock
                )
            return self._store
