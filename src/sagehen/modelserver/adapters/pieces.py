"""A script's answer in pieces: whatever can be iterated, as bytes."""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

__all__ = ["bytes_of", "in_pieces", "is_in_pieces"]

_END = object()


def is_in_pieces(result: Any) -> bool:
    """A generator, sync or async, or another iterator; not a mere list."""
    return isinstance(result, Iterator | AsyncIterator)


def in_pieces(result: Iterator[Any] | AsyncIterator[Any]) -> Generator[bytes]:
    """The pieces as they are made, without the empty ones. Raises TypeError for what is no piece.

    Closing it closes `result`.
    """
    pieces = _awaited(result) if isinstance(result, AsyncIterator) else result
    try:
        for piece in pieces:
            if data := bytes_of(piece):
                yield data
    finally:
        if (close := getattr(pieces, "close", None)) is not None:
            close()


def bytes_of(text: Any) -> bytes:
    """Raises TypeError if it is neither text nor bytes."""
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes | bytearray | memoryview):
        return bytes(text)
    raise TypeError(
        f"The script's answer is of type {type(text).__name__}; output_fn (or transform_fn) "
        "must return str or bytes, an iterator of them, or a tuple of one of these and its "
        "content type."
    )


def _awaited(pieces: AsyncIterator[Any]) -> Generator[Any]:
    """On a loop of its own, as the thread has none; its end closes an async generator."""
    import asyncio  # a sixth of a worker's start, which few scripts have any use for

    with asyncio.Runner() as runner:
        while (piece := runner.run(_next(pieces))) is not _END:
            yield piece


async def _next(pieces: AsyncIterator[Any]) -> Any:
    return await anext(pieces, _END)
