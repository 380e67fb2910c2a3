"""Replaces the values of NoEcho parameters in a stack's record with markers.

A marker is a salted hash, slow to compute, by which a later run sees whether the value has changed.
Comparisons replace each matching marker with the desired value.
"""

import functools
import hashlib
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["has_plain", "is_equal", "masked", "masked_outputs", "revealed"]

_MARKER = re.compile(r"NoEcho:([0-9a-f]{32}):([0-9a-f]{64})")
# scrypt's cost: 16 MB and about 40 ms per value.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1


def masked(properties: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Masks the values at the paths `hidden`, written as in `missing_from`.

    If a path is missing in the API's form, its whole property is masked.
    """
    masked_paths: set[str] = set()
    result = {
        name: _masked(value, name, hidden, masked_paths) for name, value in properties.items()
    }
    for path in set(hidden) - masked_paths:
        member = path.partition(".")[0].partition("[")[0]
        if member in result and not _is_marker(result[member]):
            result[member] = _mark(properties[member])
    return result


def has_plain(properties: Mapping[str, Any], hidden: Collection[str]) -> bool:
    """Tells whether values are unmasked, as earlier versions wrote them."""
    return any(
        path in hidden and not _is_marker(value)
        for name, item in properties.items()
        for path, value in _leaves(item, name)
    )


def masked_outputs(
    outputs: Mapping[str, str], hidden: Collection[str], recorded: Mapping[str, str]
) -> dict[str, str]:
    """Masks hidden outputs; reuses markers of `recorded` that still match."""
    result = {}
    for name, value in outputs.items():
        if name in hidden:
            before = recorded.get(name)
            result[name] = before if _marks(before, value) and before else _mark(value)
        else:
            result[name] = value
    return result


def revealed(recorded: Any, desired: Any) -> Any:
    """Replaces each matching marker in `recorded` with its value in `desired`."""
    if _is_marker(recorded):
        return desired if _marks(recorded, desired) else recorded
    if isinstance(recorded, dict) and isinstance(desired, dict):
        return {name: revealed(value, desired.get(name)) for name, value in recorded.items()}
    if isinstance(recorded, list) and isinstance(desired, list):
        padded = desired + [None] * (len(recorded) - len(desired))
        return [revealed(value, match) for value, match in zip(recorded, padded, strict=False)]
    return recorded


def is_equal(first: Any, second: Any) -> bool:
    return bool(revealed(first, second) == second or revealed(second, first) == first)


def _masked(value: Any, path: str, hidden: Collection[str], masked_paths: set[str]) -> Any:
    if path in hidden:
        masked_paths.add(path)
        return value if _is_marker(value) else _mark(value)
    if isinstance(value, dict):
        return {
            name: _masked(item, f"{path}.{name}", hidden, masked_paths)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [
            _masked(item, f"{path}[{number}]", hidden, masked_paths)
            for number, item in enumerate(value)
        ]
    if _is_marker(value):
        masked_paths |= {item for item in hidden if item.startswith((f"{path}.", f"{path}["))}
    return value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def _is_marker(value: Any) -> bool:
    return isinstance(value, str) and _MARKER.fullmatch(value) is not None


def _mark(value: Any) -> str:
    salt = secrets.token_hex(16)
    return f"NoEcho:{salt}:{_hash(salt, _text(value))}"


def _marks(marker: Any, value: Any) -> bool:
    match = _MARKER.fullmatch(marker) if isinstance(marker, str) else None
    if match is None or value is None:
        return False
    return secrets.compare_digest(match[2], _hash(match[1], _text(value)))


@functools.lru_cache(maxsize=256)
def _hash(salt: str, text: bytes) -> str:
    return hashlib.scrypt(
        text, salt=bytes.fromhex(salt), n=_COST, r=_BLOCK, p=_PARALLEL, dklen=32
    ).hex()


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
