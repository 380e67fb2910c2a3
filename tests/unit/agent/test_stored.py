from collections.abc import Callable

import pytest

from sagehen.agent import stored
from sagehen.agent.stored import StoredModelData
from sagehen.domain.locations import Location
from sagehen.errors import NotFound, Unavailable
from sagehen.objects import ObjectStore

Put = Callable[[str, bytes], None]


async def test_an_object_is_read_as_it_was_seen(objects: ObjectStore, put_object: Put) -> None:
    data = bytes(range(256)) * 20_000
    put_object("a/model", data)
    reader = StoredModelData(objects)
    location = Location("bucket", "a/model")
    seen = await reader.head(location)
    assert (seen.key, seen.size) == ("a/model", len(data))
    assert b"".join([part async for part in reader.read(location, seen.etag)]) == data


async def test_an_object_that_is_another_by_now_is_not_mixed_up(
    objects: ObjectStore, put_object: Put
) -> None:
    put_object("model", b"old")
    reader = StoredModelData(objects)
    location = Location("bucket", "model")
    seen = await reader.head(location)
    put_object("model", b"new")
    with pytest.raises(Unavailable, match="overwritten"):
        [part async for part in reader.read(location, seen.etag)]


async def test_all_below_a_prefix_is_listed(
    objects: ObjectStore, put_object: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "OBJECTS_PER_PAGE", 3)
    for number in range(8):
        put_object(f"m/{number}", b"x")
    put_object("other", b"x")
    found = [item.key async for item in StoredModelData(objects).list(Location("bucket", "m/"))]
    assert found == [f"m/{number}" for number in range(8)]


@pytest.mark.parametrize("bucket", ["bucket", "none"])
async def test_what_is_not_there_is_not_found(objects: ObjectStore, bucket: str) -> None:
    with pytest.raises(NotFound):
        await StoredModelData(objects).head(Location(bucket, "none"))
