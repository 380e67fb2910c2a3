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
    """Masks the values at the paths `hidden`, written as in `differences`.

    If a path is missing in the API's form, its whole property is masked.
    """
    found: set[str] = set()
    made = {name: _masked(value, name, hidden, found) for name, value in properties.items()}
    for path in set(hidden) - found:
        member = path.partition(".")[0].partition("[")[0]
        if member in made and not _is_marker(made[member]):
            made[member] = _mark(properties[member])
    return made


def has_plain(properties: Mapping[str, Any], hidden: Collection[str]) -> bool:
    """Tells whether values are unmasked, as earlier versions wrote them."""
    return any(
        path in hidden and not _is_marker(value)
        for name, one in properties.items()
        for path, value in _leaves(one, name)
    )


def masked_outputs(
    outputs: Mapping[str, str], hidden: Collection[str], kept: Mapping[str, str]
) -> dict[str, str]:
    """Masks hidden outputs; reuses markers of `kept` that still match."""
    made = {}
    for name, value in outputs.items():
        if name in hidden:
            before = kept.get(name)
            made[name] = before if _marks(before, value) and before else _mark(value)
        else:
            made[name] = value
    return made


def revealed(kept: Any, wanted: Any) -> Any:
    """Replaces each matching marker in `kept` with its value in `wanted`."""
    if _is_marker(kept):
        return wanted if _marks(kept, wanted) else kept
    if isinstance(kept, dict) and isinstance(wanted, dict):
        return {name: revealed(one, wanted.get(name)) for name, one in kept.items()}
    if isinstance(kept, list) and isinstance(wanted, list):
        others = wanted + [None] * (len(kept) - len(wanted))
        return [revealed(one, other) for one, other in zip(kept, others, strict=False)]
    return kept


def is_equal(one: Any, other: Any) -> bool:
    return bool(revealed(one, other) == other or revealed(other, one) == one)


def _masked(value: Any, path: str, hidden: Collection[str], found: set[str]) -> Any:
    if path in hidden:
        found.add(path)
        return value if _is_marker(value) else _mark(value)
    if isinstance(value, dict):
        return {name: _masked(one, f"{path}.{name}", hidden, found) for name, one in value.items()}
    if isinstance(value, list):
        return [
            _masked(one, f"{path}[{number}]", hidden, found) for number, one in enumerate(value)
        ]
    if _is_marker(value):
        found |= {one for one in hidden if one.startswith((f"{path}.", f"{path}["))}
    return value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{path}[{number}]")
    else:
        yield path, value


def _is_marker(value: Any) -> bool:
    return isinstance(value, str) and _MARKER.fullmatch(value) is not None


def _mark(value: Any) -> str:
    salt = secrets.token_hex(16)
    return f"NoEcho:{salt}:{_hash(salt, _text(value))}"


def _marks(marker: Any, value: Any) -> bool:
    found = _MARKER.fullmatch(marker) if isinstance(marker, str) else None
    if found is None or value is None:
        return False
    return secrets.compare_digest(found[2], _hash(found[1], _text(value)))


@functools.lru_cache(maxsize=256)
def _hash(salt: str, text: bytes) -> str:
    return hashlib.scrypt(
        text, salt=bytes.fromhex(salt), n=_COST, r=_BLOCK, p=_PARALLEL, dklen=32
    ).hex()


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
