from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.agent import agent as stored
from sagehen.agent.agent import StoredModelData
from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.artifacts.fetch import ModelData
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import ArtifactMissing, NotFound, Unavailable
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage import ObjectStore

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


async def test_what_is_not_there_is_told_once(objects: ObjectStore, tmp_path: Path) -> None:
    reader, bounds = StoredModelData(objects), {"max_artifact_bytes": 1, "max_unused_bytes": 1}
    cache = ArtifactCache(tmp_path, reader, **bounds, clock=SYSTEM)
    with pytest.raises(ArtifactMissing) as caught:
        await cache.acquire(ModelData(parse_location("s3://bucket/none.tar.gz")))
    assert str(caught.value) == "There is no object at s3://bucket/none.tar.gz."
    with pytest.raises(ArtifactMissing, match=r"none/model.tar.gz: There is no bucket none\.$"):
        await cache.acquire(ModelData(parse_location("s3://none/model.tar.gz")))


@pytest.mark.parametrize("bucket", ["bucket", "none"])
async def test_what_is_not_there_is_not_found(objects: ObjectStore, bucket: str) -> None:
    with pytest.raises(NotFound):
        await StoredModelData(objects).head(Location(bucket, "none"))
