"""Addresses of objects and prefixes in S3."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from sagehen.base.errors import Invalid

__all__ = ["Location", "parse_location"]

# `s3-region` is the older form; `s3-fips` and the label `dualstack` may precede the region.
_S3_HOST = re.compile(
    r"((?P<bucket>.+)\.)?s3(-[a-z0-9-]+)?(\.[a-z0-9-]+){0,2}\.amazonaws\.com(\.cn)?"
)


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
        """Appends `relative`, adding a missing `/`."""
        prefix = self.key if self.is_prefix else self.key + "/"
        return Location(self.bucket, prefix + relative)


def parse_location(url: str) -> Location:
    """Parses `s3://bucket/key`, or S3's https form. Raises Invalid."""
    scheme, separator, rest = url.partition("://")
    if scheme == "s3" and separator:
        # Not by urlsplit: an s3:// address has a raw key, in which `?`, `#` and brackets are valid.
        bucket, _, key = rest.partition("/")
        if bucket:
            return Location(bucket, key)
    elif scheme == "https":
        location = _of_https(url)
        if location is not None:
            return location
    raise Invalid(
        f"{url} is not the address of an object in S3: s3://bucket/key, or its https form "
        "without a query."
    )


def _of_https(url: str) -> Location | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return None
    if parts.query or parts.fragment:
        return None  # a version, or a signature: neither is looked at
    path = unquote(parts.path).removeprefix("/")
    service = _S3_HOST.fullmatch(host)
    if service is None:
        return None
    if service["bucket"]:
        return Location(service["bucket"], path)
    bucket, _, key = path.partition("/")
    return Location(bucket, key) if bucket else None
