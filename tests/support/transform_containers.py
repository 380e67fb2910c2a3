"""Containers that are functions."""

__all__ = ["upper"]


async def upper(payload: bytes) -> bytes:
    return payload.upper()
