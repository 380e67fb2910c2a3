import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.artifacts.artifacts import FOLDER_BYTES, ArtifactCache
from sagehen.agent.artifacts.fetch import ModelData
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import ArtifactMissing, ArtifactRejected
from sagehen.frame.s3_locations import parse_location

URL = "s3://bucket/model.tar.gz"
DATA = ModelData(parse_location(URL))
MakeCache = Callable[..., ArtifactCache]


@pytest.fixture
def make_cache(tmp_path: Path, reader: Any) -> MakeCache:
    def make(max_unused_bytes: int = 2**20, max_artifact_bytes: int = 2**20) -> ArtifactCache:
        cache = ArtifactCache(
            tmp_path / "artifacts",
            reader,
            max_artifact_bytes=max_artifact_bytes,
            max_unused_bytes=max_unused_bytes,
            clock=SYSTEM,
        )
        cache.open()
        return cache

    return make


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".fresh")


async def test_an_archive_is_fetched_once_for_all_who_ask_at_once(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model.json", b"{}"))
    cache = make_cache()
    told: list[float] = []
    artifacts = await asyncio.gather(*(cache.acquire(DATA, told.append) for _ in range(5)))
    assert reader.reads == [URL]
    assert len(told) == 1
    assert {artifact.folder for artifact in artifacts} == {artifacts[0].folder}
    assert (artifacts[0].folder / "model.json").read_bytes() == b"{}"
    assert artifacts[0].size_bytes == 2


async def test_one_who_gives_up_does_not_stop_the_others(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model", b"x"))
    reader.gate = asyncio.Event()
    cache = make_cache()
    first, second = (asyncio.create_task(cache.acquire(DATA)) for _ in range(2))
    await reader.reading.wait()
    first.cancel()
    reader.gate.set()
    assert (await second).users == 1


async def test_it_is_kept_for_the_next_agent(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model", b"x"))
    cache = make_cache()
    await cache.release(await cache.acquire(DATA))
    await make_cache().acquire(DATA)
    assert reader.reads == [URL]


@pytest.mark.parametrize("size", [None, b"", b"12x"])
async def test_what_a_power_cut_left_half_written_is_made_anew(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes], size: bytes | None
) -> None:
    reader.objects[URL] = make_archive(("model", b"x"))
    cache = make_cache()
    artifact = await cache.acquire(DATA)
    await cache.release(artifact)
    told = artifact.folder.parent / "size"
    told.unlink()
    if size is not None:
        told.write_bytes(size)
    again = await make_cache().acquire(DATA)
    assert (again.folder / "model").read_bytes() == b"x"
    assert reader.reads == [URL, URL]


async def test_only_what_is_named_like_an_artifact_can_be_a_broken_one(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model", b"x"))
    cache = make_cache()
    artifact = await cache.acquire(DATA)
    await cache.release(artifact)
    folder = artifact.folder.parent.parent
    (folder / "kept by hand").mkdir()
    (folder / "kept by hand" / "model.bin").write_bytes(b"x")
    (folder / "kept by hand" / "size").write_text("1000000")
    (folder / ("a" * 40)).mkdir()
    make_cache(max_unused_bytes=10)
    assert (folder / "kept by hand" / "model.bin").exists()
    assert not (folder / ("a" * 40)).exists()


async def test_a_new_object_at_the_address_is_a_new_artifact(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    cache = make_cache()
    reader.objects[URL] = make_archive(("model", b"old"))
    old = await cache.acquire(DATA)
    reader.objects[URL] = make_archive(("model", b"new"))
    new = await cache.acquire(DATA)
    assert (old.folder / "model").read_bytes() == b"old"
    assert (new.folder / "model").read_bytes() == b"new"


async def test_the_least_recently_used_leave_when_unused(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes], tmp_path: Path
) -> None:
    cache = make_cache(max_unused_bytes=FOLDER_BYTES + 150)
    artifacts = []
    for name in "abc":
        url = f"s3://bucket/{name}"
        reader.objects[url] = make_archive(("model", name.encode() * 100))
        artifacts.append(await cache.acquire(ModelData(parse_location(url))))
    assert len(on_disk(tmp_path / "artifacts")) == 3
    for artifact in artifacts:
        await cache.release(artifact)
    assert on_disk(tmp_path / "artifacts") == [artifacts[2].name]
    assert on_disk(tmp_path / "artifacts" / ".fresh") == []


async def test_what_is_used_by_two_leaves_with_the_second(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes], tmp_path: Path
) -> None:
    reader.objects[URL] = make_archive(("model", b"x"))
    cache = make_cache()
    first, second = await cache.acquire(DATA), await cache.acquire(DATA)
    await cache.release(first, keep=False)
    assert first.folder.exists()
    await cache.release(second, keep=False)
    assert on_disk(tmp_path / "artifacts") == []
    await cache.acquire(DATA)
    assert reader.reads == [URL, URL]


async def test_a_missing_object_is_told_with_its_address(make_cache: MakeCache) -> None:
    with pytest.raises(ArtifactMissing, match=URL):
        await make_cache().acquire(DATA)


async def test_a_bad_archive_is_read_once_and_leaves_nothing(
    make_cache: MakeCache, reader: Any, make_archive: Callable[..., bytes], tmp_path: Path
) -> None:
    reader.objects[URL] = make_archive(("ok", b"x"), ("../evil", b"x"))
    cache = make_cache()
    for _ in range(2):
        with pytest.raises(ArtifactRejected, match="leads out of its folder"):
            await cache.acquire(DATA)
    assert reader.reads == [URL]
    assert on_disk(tmp_path / "artifacts") == []
    assert on_disk(tmp_path / "artifacts" / ".fresh") == []
    assert on_disk(tmp_path) == ["artifacts"]


async def test_an_archive_beyond_the_bound_is_not_even_read(
    make_cache: MakeCache, reader: Any
) -> None:
    reader.objects[URL] = bytes(1001)
    with pytest.raises(ArtifactRejected, match="at most 1000"):
        await make_cache(max_artifact_bytes=1000).acquire(DATA)
    assert reader.reads == []


async def test_plain_files_below_a_prefix(make_cache: MakeCache, reader: Any) -> None:
    reader.objects = {
        "s3://bucket/m/": b"",
        "s3://bucket/m/code/": b"",
        "s3://bucket/m/code/inference.py": b"pass",
        "s3://bucket/m/weights": b"1234",
        "s3://bucket/other": b"no",
    }
    data = ModelData(parse_location("s3://bucket/m/"), compressed=False)
    artifact = await make_cache().acquire(data)
    files = [path for path in artifact.folder.rglob("*") if path.is_file()]
    assert {path.relative_to(artifact.folder).as_posix() for path in files} == {
        "code/inference.py",
        "weights",
    }
    assert artifact.size_bytes == 8


async def test_a_plain_object_is_a_file_of_its_name(make_cache: MakeCache, reader: Any) -> None:
    reader.objects["s3://bucket/m/weights.bin"] = b"1234"
    data = ModelData(parse_location("s3://bucket/m/weights.bin"), compressed=False)
    artifact = await make_cache().acquire(data)
    assert (artifact.folder / "weights.bin").read_bytes() == b"1234"


@pytest.mark.parametrize(
    "keys", [["m/../x"], ["m//x"], ["m/a", "m/a/b"], ["m/" + "n" * 256], ["m/./x"]]
)
async def test_keys_that_are_no_paths_are_refused(
    make_cache: MakeCache, reader: Any, keys: list[str], tmp_path: Path
) -> None:
    reader.objects = {f"s3://bucket/{key}": b"x" for key in keys}
    with pytest.raises(ArtifactRejected):
        await make_cache().acquire(ModelData(parse_location("s3://bucket/m/"), compressed=False))
    assert on_disk(tmp_path / "artifacts") == []


async def test_a_prefix_with_nothing_below_it_is_missing(make_cache: MakeCache) -> None:
    with pytest.raises(ArtifactMissing, match="s3://bucket/m/"):
        await make_cache().acquire(ModelData(parse_location("s3://bucket/m/"), compressed=False))
