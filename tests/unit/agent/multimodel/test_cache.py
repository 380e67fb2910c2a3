import asyncio
import dataclasses
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.errors import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.multimodel.cache import SLACK_BYTES
from sagehen.agent.multimodel.cached_models import LEASE_SECONDS
from sagehen.agent.multimodel.container_client import opaque_name
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import (
    ArtifactError,
    ArtifactMissing,
    ArtifactRejected,
    Invalid,
    Unavailable,
)
from support.model_bench import KIB, SIZE, Bench


@pytest.fixture
async def make_bench(
    tmp_path: Path, reader: Any, make_archive: Callable[..., bytes]
) -> AsyncIterator[Callable[..., Bench]]:
    for letter in "abcdefgh":
        reader.objects[f"s3://bucket/models/{letter}"] = make_archive(("model", bytes(SIZE)))
    artifacts = ArtifactCache(
        tmp_path / "artifacts",
        reader,
        max_artifact_bytes=2**20,
        max_unused_bytes=2**30,
        clock=SYSTEM,
    )
    artifacts.open()
    benches = []

    def make(room: int = 3 * SIZE, keep: bool = True, max_load_seconds: float = 360) -> Bench:
        folder = tmp_path / f"models{len(benches)}"
        folder.mkdir()
        benches.append(Bench(folder, artifacts, room, keep, max_load_seconds))
        return benches[-1]

    yield make
    for bench in benches:
        await bench.cache.close()
        assert list(bench.folder.iterdir()) == []
    assert artifacts._in_use == {}


MakeBench = Callable[..., Bench]


async def test_a_model_is_loaded_by_the_first_call_and_hit_by_the_next(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    first = await bench.cache.load("a", 60)
    second = await bench.cache.load("a", 60)
    assert (first.hit, second.hit) == (False, True)
    assert first.model_name == second.model_name == opaque_name("a")
    assert bench.container.models == {first.model_name: f"{bench.folder}/{first.model_name}/model"}
    assert (bench.folder / first.model_name / "model" / "model").stat().st_size == SIZE
    assert (bench.cache.loaded_count, bench.cache.charged_bytes) == (1, SIZE)
    assert (bench.tallies.loading.count, bench.tallies.downloading.count) == (1, 1)
    assert bench.tallies.waiting.count == 1


async def test_all_who_ask_at_once_wait_for_one_load(make_bench: MakeBench, reader: Any) -> None:
    bench = make_bench()
    await asyncio.gather(*(bench.cache.load("a", 60) for _ in range(20)))
    assert len(bench.container.loads) == 1
    assert reader.reads == ["s3://bucket/models/a"]


async def test_the_least_recently_used_makes_room(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.load("a", "b", "c")
    bench.cache.touch([opaque_name("a"), "unheard-of"])
    await bench.load("d")
    assert bench.held == {"a", "c", "d"}
    assert bench.tallies.unloading.count == 1


async def test_an_unloaded_model_comes_back_from_disk(make_bench: MakeBench, reader: Any) -> None:
    bench = make_bench(room=SIZE)
    await bench.load("a", "b", "a")
    assert bench.held == {"a"}
    assert len(reader.reads) == 2
    assert (bench.tallies.loading.count, bench.tallies.downloading.count) == (3, 2)


async def test_a_container_without_memory_gets_others_unloaded(make_bench: MakeBench) -> None:
    bench = make_bench(room=8 * SIZE)
    await bench.load("a", "b", "c", "d")
    bench.container.capacity = 2
    await bench.load("e")
    assert bench.held == {"d", "e"}


async def test_a_container_that_never_has_memory_is_told_so(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.load("a", "b")
    bench.container.capacity = 0
    with pytest.raises(NoRoom, match="out of memory"):
        await bench.cache.load("c", 60)
    assert bench.cache.charged_bytes == 0


async def test_a_model_larger_than_all_room_unloads_nobody(make_bench: MakeBench) -> None:
    bench = make_bench(room=SIZE - 1)
    with pytest.raises(NoRoom):
        await bench.cache.load("a", 60)
    assert bench.container.unloads == []


async def test_memory_that_no_files_explain_is_booked(make_bench: MakeBench) -> None:
    bench = make_bench(room=10 * SIZE)
    bench.memory = SLACK_BYTES + 8 * SIZE
    await bench.load("a")
    assert bench.cache.charged_bytes == 8 * SIZE
    bench.memory += 4 * SIZE
    await bench.load("b")
    assert bench.held == {"b"}, "what turned out too much is unloaded, the new one stays"


async def test_growth_below_the_slack_is_nobodys(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.memory = SLACK_BYTES
    await bench.load("a", "b", "c")
    assert bench.held == {"a", "b", "c"}


async def test_loads_at_once_wait_for_each_others_room(make_bench: MakeBench) -> None:
    bench = make_bench(room=SIZE)
    await asyncio.gather(*(bench.load(letter) for letter in "abcdefgh"))
    assert len(bench.held) == 1
    assert bench.cache.charged_bytes == SIZE


async def test_a_slow_load_goes_on_when_its_caller_is_told_to_ask_again(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    bench.container.gate.clear()
    waiting = asyncio.create_task(bench.cache.load("a", 60))
    await bench.container.loading.wait()
    with pytest.raises(ModelNotReady):
        await bench.cache.load("a", 0)
    bench.container.gate.set()
    assert (await waiting).hit is False
    assert len(bench.container.loads) == 1


async def test_a_model_that_the_container_dropped_is_loaded_again(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.load("a")
    bench.container.models.clear()
    assert (await bench.cache.load("a", 60)).hit is False
    assert bench.held == {"a"}
    assert bench.cache.charged_bytes == SIZE


async def test_who_was_slow_to_see_that_a_model_is_gone_has_it_once_it_is_back(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    await bench.load("a")
    bench.container.models.clear()
    looking, seen = asyncio.Event(), asyncio.Event()

    async def look_slowly(model_name: str) -> bool:
        monkeypatch.undo()  # the next looks as ever
        looking.set()
        await seen.wait()
        return False

    monkeypatch.setattr(bench.container, "holds", look_slowly)
    slow = asyncio.create_task(bench.cache.load("a", 60))
    await looking.wait()
    assert (await bench.cache.load("a", 60)).hit is False
    seen.set()
    await slow
    assert len(bench.container.loads) == 2
    assert bench.cache.charged_bytes == SIZE


async def test_a_new_object_is_callable_at_once_and_an_old_copy_serves_on(
    make_bench: MakeBench, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    bench = make_bench()
    with pytest.raises(ArtifactMissing, match="s3://bucket/models/new/york"):
        await bench.cache.load("new/york", 60)
    reader.objects["s3://bucket/models/new/york"] = make_archive(("model", b"1"))
    loaded = await bench.cache.load("new/york", 60)
    reader.objects["s3://bucket/models/new/york"] = make_archive(("model", b"2"))
    assert (await bench.cache.load("new/york", 60)).hit is True
    assert (bench.folder / loaded.model_name / "model" / "model").read_bytes() == b"1"


async def test_what_cannot_be_loaded_leaves_nothing(
    make_bench: MakeBench, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    bench = make_bench()
    reader.objects["s3://bucket/models/bad"] = b"not an archive"
    reader.objects["s3://bucket/models/odd"] = make_archive(("refuse", b""))
    with pytest.raises(ArtifactRejected, match="Failed to extract model data archive"):
        await bench.cache.load("bad", 60)
    with pytest.raises(ModelRefused, match="no such tree"):
        await bench.cache.load("odd", 60)
    assert list(bench.folder.iterdir()) == []
    assert bench.cache.charged_bytes == 0


async def test_without_cache_a_model_leaves_memory_and_disk_after_use(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench(keep=False)
    lent = await bench.cache.load("a", 60)
    assert lent.keep is False
    assert (await bench.cache.load("a", 60)).hit is True
    bench.cache.release({lent.model_name: 1})
    assert bench.held == {"a"}, "another still needs it"
    bench.cache.release({lent.model_name: 1})
    await bench.container.unloading.wait()
    await bench.load("b")  # Which waits for nothing that a leaves behind.
    assert (await bench.cache.load("a", 60)).hit is False
    bench.clock.seconds += LEASE_SECONDS
    await bench.cache.unload_idle()
    assert bench.held == {"a"}
    bench.clock.seconds += 1
    await bench.cache.unload_idle()
    assert bench.held == set(), "who borrowed it has ended"
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [".fresh"]


async def test_what_is_lent_stays_however_little_room_there_is(make_bench: MakeBench) -> None:
    bench = make_bench(room=SIZE)
    lent = await bench.cache.load("a", 60)
    waiting = asyncio.create_task(bench.load("b"))
    with pytest.raises(ModelNotReady):
        await bench.cache.load("b", 0.01)
    assert bench.held == {"a"}
    bench.cache.release({lent.model_name: 1, "unheard-of": 3})
    await waiting
    assert bench.held == {"b"}


async def test_who_borrows_and_ends_blocks_nobody_for_long(make_bench: MakeBench) -> None:
    bench = make_bench(room=SIZE)
    await bench.cache.load("a", 60)
    bench.clock.seconds += LEASE_SECONDS + 1
    await bench.load("b")
    assert bench.held == {"b"}


async def test_all_who_waited_have_borrowed_what_was_loaded(make_bench: MakeBench) -> None:
    bench = make_bench(room=SIZE)
    first, *_ = await asyncio.gather(*(bench.cache.load("a", 60) for _ in range(3)))
    bench.cache.release({first.model_name: 2})
    with pytest.raises(ModelNotReady):
        await bench.cache.load("b", 0.01)
    assert bench.held == {"a"}
    bench.cache.release({first.model_name: 1})
    await bench.load("b")
    assert bench.held == {"b"}


async def test_a_container_short_of_memory_gets_others_unloaded_not_the_one_in_use(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(room=8 * SIZE)
    await bench.load("a", "b", "c", "d", "e")
    lent = await bench.cache.load("b", 60)
    assert (await bench.cache.load("a", 60, short_of_memory=True)).hit is True
    assert bench.held == {"a", "b", "e"}, "half of c, d, e"
    bench.cache.release({lent.model_name: 1})


async def test_a_load_that_never_ends_is_given_up_and_the_next_may_try(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(max_load_seconds=0.05)
    bench.container.gate.clear()
    with pytest.raises(ModelRefused, match="was not loaded within"):
        await bench.cache.load("a", 60)
    assert (list(bench.folder.iterdir()), bench.cache.charged_bytes) == ([], 0)
    assert bench.container.unloads == [opaque_name("a")], "it may be loaded after all"
    bench.container.gate.set()
    bench.cache._plan = dataclasses.replace(bench.cache._plan, max_load_seconds=60)
    await bench.load("a")
    assert bench.held == {"a"}


async def test_a_slow_store_does_not_hold_up_what_is_on_disk(
    make_bench: MakeBench, reader: Any
) -> None:
    bench = make_bench(room=8 * SIZE)
    await bench.load("a", "b")
    reader.gate = asyncio.Event()
    slow = [asyncio.create_task(bench.load(letter)) for letter in "cdefg"]  # More than loads.
    await reader.reading.wait()
    bench.container.models.clear()
    await bench.load("a", "b")
    assert bench.held == {"a", "b"}
    reader.gate.set()
    await asyncio.gather(*slow)
    assert bench.held == set("abcdefg")


async def test_a_store_that_is_away_is_told_and_asked_again(
    make_bench: MakeBench, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()

    async def away(location: object) -> None:
        raise Unavailable("The object store does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(reader, "head", away)
        with pytest.raises(Unavailable, match="does not answer"):
            await bench.cache.load("a", 60)
    assert (list(bench.folder.iterdir()), bench.cache.charged_bytes) == ([], 0)
    await bench.load("a")
    assert bench.held == {"a"}


async def test_a_full_disk_is_cleared_of_what_nobody_uses_and_then_said(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = make_bench(room=SIZE)
    await bench.load("a", "b")

    def full(source: str, target: str, **_: object) -> None:
        raise shutil.Error([(source, target, f"[Errno 28] {os.strerror(errno.ENOSPC)}: 'x'")])

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(ArtifactError, match=r"Failed to download model data .*No space left"):
        await bench.cache.load("c", 60)
    kept = [path.name for path in (tmp_path / "artifacts").iterdir() if path.name != ".fresh"]
    assert len(kept) == 1, "c itself: a and b made room"
    assert (list(bench.folder.iterdir()), bench.cache.charged_bytes) == ([], 0)


async def test_with_cache_an_idle_model_stays(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.load("a")
    bench.clock.seconds += 10_000
    await bench.cache.unload_idle()
    assert bench.held == {"a"}


async def test_who_waits_when_the_container_ends_is_told(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.container.gate.clear()
    waiting = asyncio.create_task(bench.cache.load("a", 60))
    await bench.container.loading.wait()
    await bench.cache.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await bench.cache.load("b", 60)


async def test_a_container_that_ends_while_it_unloads_gives_the_artifact_back(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(room=SIZE)
    await bench.load("a")
    bench.container.lets_go.clear()
    waiting = asyncio.create_task(bench.cache.load("b", 60))
    await bench.container.unloading.wait()
    await bench.cache.close()
    with pytest.raises(Unavailable):
        await waiting
    # That no artifact is in use any more is held against every test at its end.


async def test_many_models_come_and_go(
    make_bench: MakeBench, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    bench = make_bench(room=50 * 64 * KIB)
    archive = make_archive(("model", b"x"))
    for number in range(200):
        reader.objects[f"s3://bucket/models/{number}.tar.gz"] = archive
    for start in range(0, 200, 20):
        targets = [f"{number}.tar.gz" for number in range(start, start + 20)]
        await asyncio.gather(*(bench.load(target) for target in targets))
    assert bench.cache.loaded_count == len(bench.container.models) == 50


@pytest.mark.parametrize("target", ["", "/a", "../a", "a/../b", "a\0b", "a/", " a", "n" * 1025])
async def test_what_cannot_be_a_key_is_refused(make_bench: MakeBench, target: str) -> None:
    with pytest.raises(Invalid, match=r"^1 validation error detected: Value '.*' at 'targetModel'"):
        await make_bench().cache.load(target, 60)
