"""Where model data lies in the object store, and what of the store is needed to read it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sagehen.errors import Invalid

__all__ = ["Location", "ModelData", "ModelDataReader", "StoredObject", "parse_location"]


@dataclass(frozen=True)
class StoredObject:
    """One object, as a listing or a HEAD tells of it."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True)
class Location:
    """A key, or a prefix of keys, in a bucket."""

    bucket: str
    key: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    @property
    def is_prefix(self) -> bool:
        return self.key.endswith("/") or not self.key

    def below(self, relative: str) -> "Location":
        """What lies at `relative` under this prefix, whether or not it was given with its `/`."""
        prefix = self.key if self.is_prefix else self.key + "/"
        return Location(self.bucket, prefix + relative)


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


def parse_location(url: str) -> Location:
    """Read `s3://bucket/key`, or S3's https form of it.

    Raises:
        Invalid: it is neither.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3" and parts.netloc:
        # Not unquoted: an s3:// address holds the key as it is.
        return Location(parts.netloc, url.removeprefix(f"s3://{parts.netloc}").removeprefix("/"))
    host, path = parts.hostname or "", unquote(parts.path).removeprefix("/")
    if parts.scheme == "https" and host:
        bucket, dot, service = host.partition(".s3")
        if dot and service.startswith((".", "-")):
            return Location(bucket, path)
        first, _, rest = path.partition("/")
        if host.startswith("s3") and first:
            return Location(first, rest)
    raise Invalid(f"{url} is not the address of an object in S3: s3://bucket/key.")
