"""Reading objects in ranges."""

import asyncio

import pytest

from sagehen.frame.s3_client import S3Piece
from sagehen.frame.s3_locations import Location
from sagehen.services.sagemaker.transform.runner import reading
from sagehen.services.sagemaker.transform.runner.errors import ObjectError
from sagehen.services.sagemaker.transform.runner.listing import InputObject
from sagehen.services.sagemaker.transform.runner.object_transform import read_pieces
from sagehen.services.sagemaker.transform.runner.reading import ObjectReader
from support.transform_runs import MemoryStore


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_BYTES", 4)
    monkeypatch.setattr(reading, "RANGE_BYTES", 10)


def an_object(store: MemoryStore, data: bytes, size: int | None) -> ObjectReader:
    store.objects["in", "x"] = data
    item = InputObject(Location("in", "x"), Location("out", "x"), size, None)
    return ObjectReader(store, item)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("size", [0, 1, 4, 5, 14, 15, 40])
async def test_all_of_an_object_is_read_once(
    store: MemoryStore, size: int, is_listed: bool
) -> None:
    data = bytes(range(size))
    reader = an_object(store, data, size if is_listed else None)
    pieces = [piece async for piece in read_pieces(reader, False, asyncio.Semaphore(1))]
    assert b"".join(pieces) == data
    assert reader.size == size
    starts = [request[2] for request in store.requests]
    assert len(starts) == len(set(starts))


async def test_one_range_is_read_ahead(store: MemoryStore) -> None:
    reader = an_object(store, bytes(50), 50)
    await reader.first()
    rest = reader.rest()
    await anext(rest)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [request[2] for request in store.requests] == [0, 4, 14]
    await rest.aclose()


async def test_small_objects_do_not_wait_for_large_ones(store: MemoryStore) -> None:
    reader = an_object(store, b"1234", 4)
    nobody = asyncio.Semaphore(0)
    assert [piece async for piece in read_pieces(reader, False, nobody)] == [b"1234"]


async def test_a_turn_is_given_back_when_reading_breaks_off(store: MemoryStore) -> None:
    turns = asyncio.Semaphore(1)
    pieces = read_pieces(an_object(store, bytes(50), 50), False, turns)
    await anext(pieces)
    await anext(pieces)
    assert turns.locked()
    await pieces.aclose()
    assert not turns.locked()


@pytest.mark.parametrize("returned", [b"", bytes(9), bytes(50)])
async def test_a_range_of_another_size_fails(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, returned: bytes
) -> None:
    reader = an_object(store, bytes(50), 50)
    await reader.first()

    async def read(*_: object) -> S3Piece:
        return S3Piece(returned, 50, "etag")

    monkeypatch.setattr(store, "read", read)
    with pytest.raises(ObjectError, match=f"{len(returned)} bytes came instead of 10 from byte 4"):
        await anext(reader.rest())


async def test_an_absent_object_fails(store: MemoryStore) -> None:
    reader = an_object(store, b"", None)
    del store.objects["in", "x"]
    with pytest.raises(ObjectError, match="NoSuchKey"):
        await reader.first()
