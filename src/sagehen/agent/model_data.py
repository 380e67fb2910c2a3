"""Where model data lies in the object store, and what of the store is needed to read it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from sagehen.domain.locations import Location

__all__ = ["ModelData", "ModelDataReader", "StoredObject"]


@dataclass(frozen=True)
class StoredObject:
    """One object, as a listing or a HEAD tells of it."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True)
class ModelData:
    """What is to be fetched: an archive, or plain files (an object, or all below a prefix)."""

    location: Location
    compressed: bool = True
    etag: str | None = None
    """The version of one object that is wanted, if it can still be had."""


class ModelDataReader(Protocol):
    """What the agent asks of an object store. Missing things raise NotFound."""

    async def head(self, location: Location) -> StoredObject:
        """Size and ETag of one object."""

    def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        """The bytes of one object; another ETag by now raises Unavailable."""

    def list(self, location: Location) -> AsyncIterator[StoredObject]:
        """Every object below a prefix, in the order of their keys."""
