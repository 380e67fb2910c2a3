"""Model data from the store: archives and plain files, within bounds."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sagehen.agent.artifacts import fetch as module
from sagehen.agent.artifacts.fetch import ModelData, StoredObject, fetch
from sagehen.base.errors import ArtifactRejected
from sagehen.frame.s3_locations import Location, parse_location

PREFIX = parse_location("s3://bucket/models/a/")


class FakeReader:
    def __init__(self, **objects: bytes) -> None:
        self.objects = {f"models/a/{name}": data for name, data in objects.items()}

    def add(self, name: str, data: bytes = b"") -> None:
        self.objects[f"models/a/{name}"] = data

    @property
    def listed(self) -> list[StoredObject]:
        return [StoredObject(key, len(data), "etag") for key, data in self.objects.items()]

    async def head(self, location: Location) -> StoredObject:
        return StoredObject(location.key, len(self.objects[location.key]), "etag")

    async def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        yield self.objects[location.key]

    async def list(self, location: Location) -> AsyncIterator[StoredObject]:
        for stored in self.listed:
            yield stored


async def fetch_files(reader: FakeReader, folder: Path, max_bytes: int = 100) -> int:
    data = ModelData(PREFIX, compressed=False)
    return await fetch(reader, data, reader.listed, folder, max_bytes=max_bytes)


async def test_plain_files_keep_their_paths_below_the_prefix(tmp_path: Path) -> None:
    reader = FakeReader(weights=b"123")
    reader.add("code/inference.py", b"pass")
    reader.add("folder/")
    assert await fetch_files(reader, tmp_path) == 7
    assert (tmp_path / "code" / "inference.py").read_bytes() == b"pass"
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o444
    assert not (tmp_path / "folder").exists(), "a console's folder marker"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../out", "leads out of its folder"),
        ("a//b", "is not a valid file path"),
        ("weights/more", "is a file where another key needs a folder"),
    ],
)
async def test_a_key_that_is_no_path_rejects_the_model(
    name: str, reason: str, tmp_path: Path
) -> None:
    reader = FakeReader(weights=b"1")
    reader.add(name, b"2")
    with pytest.raises(ArtifactRejected, match=reason):
        await fetch_files(reader, tmp_path)


async def test_files_have_a_bound_on_their_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = FakeReader(a=b"12345", b=b"6789")
    with pytest.raises(ArtifactRejected, match="It has 2 objects of 9 bytes"):
        await fetch_files(reader, tmp_path, max_bytes=8)
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    with pytest.raises(ArtifactRejected, match="at most 1 objects"):
        await fetch_files(reader, tmp_path)


@pytest.mark.parametrize("in_memory", [True, False])
async def test_an_archive_is_unpacked_from_memory_or_disk(
    in_memory: bool,
    tmp_path: Path,
    make_archive: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not in_memory:
        monkeypatch.setattr(module, "WRITE_BYTES", 10)
    reader, folder = FakeReader(archive=make_archive(("model", b"weights"))), tmp_path / "model"
    folder.mkdir()
    data = ModelData(parse_location("s3://bucket/models/a/archive"))
    assert await fetch(reader, data, reader.listed, folder, max_bytes=10_000) == 7
    assert (folder / "model").read_bytes() == b"weights"
    assert os.listdir(tmp_path) == ["model"], "the archive is gone"
    with pytest.raises(ArtifactRejected, match="at most 3 are allowed"):
        await fetch(reader, data, reader.listed, folder, max_bytes=3)
