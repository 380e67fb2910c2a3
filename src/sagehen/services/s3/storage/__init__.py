"""Stores S3 objects on the local disk, or in another S3 service through obstore."""

from typing import TYPE_CHECKING, Any

from sagehen.services.s3.storage.store import Copy, ObjectStore, OpenObject

if TYPE_CHECKING:
    from sagehen.services.s3.storage.foreign import ForeignObjectStore
    from sagehen.services.s3.storage.local import LocalObjectStore
    from sagehen.services.s3.storage.opening import open_object_store, open_remote
    from sagehen.services.s3.storage.uploads import ChosenPart, Completion

__all__ = [
    "ChosenPart",
    "Completion",
    "Copy",
    "ForeignObjectStore",
    "LocalObjectStore",
    "ObjectStore",
    "OpenObject",
    "open_object_store",
    "open_remote",
]

_LATE = {
    "ChosenPart": "uploads",
    "Completion": "uploads",
    "ForeignObjectStore": "foreign",
    "LocalObjectStore": "local",
    "open_object_store": "opening",
    "open_remote": "opening",
}
"""imported on first use, to avoid loading SQLAlchemy or obstore"""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
