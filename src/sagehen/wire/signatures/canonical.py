"""The canonical request text that a SigV4 signature covers."""

import functools
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

__all__ = ["canonical_headers", "canonical_paths", "canonical_queries", "is_plain_path"]

_SIGNATURE_PARAMETER = "X-Amz-Signature"

_UNRESERVED = "-_.~"
_PLAIN_PATH = re.compile(r"/|(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+/?")
MAX_CACHED_PATH_LENGTH = 256
_BLANKS = re.compile(r"[ \t]+")


def is_plain_path(raw_path: str) -> bool:
    """Whether normalising and encoding would not change a path: the common case."""
    if len(raw_path) > MAX_CACHED_PATH_LENGTH:
        return _PLAIN_PATH.fullmatch(raw_path) is not None
    return _is_plain_path(raw_path)


@functools.lru_cache(maxsize=1024)
def _is_plain_path(raw_path: str) -> bool:
    return _PLAIN_PATH.fullmatch(raw_path) is not None


def canonical_paths(service: str, raw_path: str) -> tuple[str, ...]:
    """Returns the spellings that a client may have signed, likeliest first.

    S3 takes the path as sent; other services normalise and encode it again.
    """
    if is_plain_path(raw_path):
        return (raw_path,)
    if service == "s3":
        return _spellings(raw_path or "/", _encode_once(raw_path, "/") or "/")
    return (quote(_normalize(raw_path).encode("latin-1", "replace"), safe="/~"),)


def canonical_queries(raw_query: str) -> tuple[str, ...]:
    """Returns the spellings that a client may have signed, without the signature. A plus is a
    blank."""
    if not raw_query:
        return ("",)
    sent = []
    encoded = []
    for pair in raw_query.split("&"):
        name, _, value = pair.partition("=")
        in_full = _encode_once(name.replace("+", " "))
        if name and in_full != _SIGNATURE_PARAMETER:
            sent.append((name, value))
            encoded.append((in_full, _encode_once(value.replace("+", " "))))
    return _spellings(_join(sent), _join(encoded))


def canonical_headers(headers: Mapping[str, str], names: Iterable[str]) -> str:
    """Missing headers are empty.

    Collapses only blanks and tabs: a no-break space's byte is part of many UTF-8 letters.
    """
    return "".join([f"{name}:{_gathered(headers.get(name, ''))}\n" for name in names])


def _gathered(value: str) -> str:
    return _BLANKS.sub(" ", value.strip(" \t"))


def _spellings(sent: str, encoded: str) -> tuple[str, ...]:
    # Clients that leave `!` or `/` bare sign either form; both decode to the same request.
    return (encoded,) if sent == encoded else (encoded, sent)


def _encode_once(text: str, also_safe: str = "") -> str:
    raw = unquote_to_bytes(text.encode("latin-1", "replace"))
    return quote(raw, safe=_UNRESERVED + also_safe)


def _join(pairs: list[tuple[str, str]]) -> str:
    return "&".join([f"{name}={value}" for name, value in sorted(pairs)])


def _normalize(path: str) -> str:
    """Removes empty, `.` and `..` segments (RFC 3986, 5.2.4, except for a final dot)."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    end = "/" if segments and path.endswith("/") else ""
    return "/" + "/".join(segments) + end
