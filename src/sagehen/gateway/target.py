"""The target of a request, taken apart once: clients name the same few endpoints over and over."""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

__all__ = ["Target", "read_target"]

_ENDPOINTS = "/endpoints/"
_LONGEST_REMEMBERED = 512


class Target(NamedTuple):
    path: str
    """As sent: percent-encoded, without the query."""
    query: str
    endpoint: str
    """Of `/endpoints/{endpoint}/{action}`, percent-decoded; empty where the path is another."""
    action: str


def read_target(target: bytes) -> Target:
    return _known(target) if len(target) <= _LONGEST_REMEMBERED else _read(target)


def _read(target: bytes) -> Target:
    path, _, query = target.decode("latin-1").partition("?")
    if not path.startswith(_ENDPOINTS):
        return Target(path, query, "", "")
    name, _, action = path[len(_ENDPOINTS) :].partition("/")
    return Target(path, query, unquote(name), action)


_known = lru_cache(maxsize=4096)(_read)
