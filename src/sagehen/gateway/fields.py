"""Header fields as a mapping, the way signatures are made over them."""

from functools import lru_cache

__all__ = ["joined_fields"]


def joined_fields(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; values of repeated fields joined by commas."""
    headers = {_text(name): value.decode("latin-1") for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, raw_value in fields:
            name, value = _text(raw_name), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


@lru_cache(maxsize=256)
def _text(name: bytes) -> str:
    return name.decode("latin-1").lower()
