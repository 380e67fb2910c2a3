"""Where something lies in the object store, as addresses of S3 say it."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from sagehen.base.errors import Invalid

__all__ = ["Location", "parse_location"]


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


def parse_location(url: str) -> Location:
    """Read `s3://bucket/key`, or S3's https form of it.

    Raises:
        Invalid: it is neither.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "s3" and separator:
        # Taken apart by hand: an s3:// address holds the key as it is, also `?`, `#` and brackets.
        bucket, _, key = rest.partition("/")
        if bucket:
            return Location(bucket, key)
    elif scheme == "https":
        found = _of_https(url)
        if found is not None:
            return found
    raise Invalid(f"{url} is not the address of an object in S3: s3://bucket/key.")


def _of_https(url: str) -> Location | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return None
    path = unquote(parts.path).removeprefix("/")
    bucket, dot, service = host.partition(".s3")
    if bucket and dot and service.startswith((".", "-")):
        return Location(bucket, path)
    first, _, rest = path.partition("/")
    if host.startswith(("s3.", "s3-")) and first:
        return Location(first, rest)
    return None
