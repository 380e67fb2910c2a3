"""The object store: S3's operations over local disk, or any other S3 through obstore."""

from sagehen.objects.foreign import ForeignObjectStore
from sagehen.objects.local import LocalObjectStore
from sagehen.objects.opening import open_object_store, open_remote
from sagehen.objects.store import Copy, ObjectStore, OpenObject
from sagehen.objects.uploads import ChosenPart, Completion

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
