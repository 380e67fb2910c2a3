"""Objects that come in pieces of any size."""

from hypothesis import strategies as st

__all__ = ["chunkings", "divided"]


def chunkings(most: int = 400) -> st.SearchStrategy[list[int]]:
    """Sizes of the first pieces; the rest is the last one."""
    return st.lists(st.integers(0, most), max_size=12)


def divided(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]
