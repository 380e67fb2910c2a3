"""A request and a response, as the protocols see them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Request", "Response"]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. The body is whole here; S3 hands streams beside it, with `body` empty."""

    method: str
    raw_path: str
    """As sent: percent-encoded, without the query."""
    raw_query: str
    """As sent, without the question mark."""
    headers: Mapping[str, str]
    """Names in lower case; repeated headers joined by commas."""
    body: bytes = b""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""
