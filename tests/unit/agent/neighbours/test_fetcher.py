"""Artifacts between nodes, over TLS, in one process."""

import asyncio
import os
from typing import Any

import pytest

from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.neighbours import fetcher as fetcher_module
from sagehen.agent.neighbours import routes as routes_module
from sagehen.agent.neighbours.download import NeighbourError
from sagehen.agent.neighbours.fetcher import (
    LONGEST_WAIT_SECONDS,
    PATIENCE_SECONDS,
    SLOWEST_COPY_BYTES_PER_SECOND,
    CopyGrowth,
)
from sagehen.agent.neighbours.messages import ArtifactState
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import ArtifactMissing, NotFound, Unavailable
from sagehen.frame.s3_locations import parse_location
from support.fixtures.gateway import eventually
from support.fixtures.neighbours import CacheNodes

URL = "s3://bucket/model.tar.gz"
DATA = ModelData(parse_location(URL))
CONTENT = os.urandom(3 * 2**20)


@pytest.fixture
def nodes(cache_nodes: CacheNodes, reader: Any, make_archive: Any) -> CacheNodes:
    reader.objects[URL] = make_archive(("weights", CONTENT), ("code/inference.py", b"pass"))
    return cache_nodes


async def test_the_store_is_read_once_by_eight_nodes_that_begin_at_once(
    nodes: CacheNodes, reader: Any
) -> None:
    await nodes.start(8)
    # Several instances on each.
    artifacts = await asyncio.gather(
        *(node.cache.acquire(DATA) for node in nodes.all for _ in range(3))
    )
    assert reader.reads == [URL]
    assert len({artifact.folder for artifact in artifacts}) == 8
    for artifact in artifacts:
        assert (artifact.folder / "weights").read_bytes() == CONTENT
        assert not (artifact.folder / "weights").stat().st_mode & 0o222
    digests = {artifact.origin.digest for artifact in artifacts if artifact.origin}
    assert len(digests) == 1
    assert len({artifact.size_bytes for artifact in artifacts}) == 1


async def test_who_comes_later_gets_it_from_a_node_and_not_from_the_store(
    nodes: CacheNodes, reader: Any
) -> None:
    await nodes.start(3)
    await nodes[0].cache.acquire(DATA)
    await nodes[1].cache.acquire(DATA)
    await nodes[2].cache.acquire(DATA)
    assert reader.reads == [URL]


async def test_another_version_is_not_taken_for_the_same(
    nodes: CacheNodes, reader: Any, make_archive: Any
) -> None:
    await nodes.start(2)
    await nodes[0].cache.acquire(DATA)
    reader.objects[URL] = make_archive(("weights", b"new"))
    artifact = await nodes[1].cache.acquire(DATA)
    assert (artifact.folder / "weights").read_bytes() == b"new"
    assert reader.reads == [URL, URL]


async def test_a_changed_copy_is_refused_and_the_store_asked(
    nodes: CacheNodes, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await nodes.start(2)
    artifact = await nodes[0].cache.acquire(DATA)
    # As a container of root's could.
    (artifact.folder / "weights").chmod(0o600)
    (artifact.folder / "weights").write_bytes(b"!" + CONTENT[1:])
    fetched = await nodes[1].cache.acquire(DATA)
    assert (fetched.folder / "weights").read_bytes() == CONTENT
    assert reader.reads == [URL, URL]
    assert "its content is not what was fetched from the store" in caplog.text


async def test_a_node_that_has_ended_is_left_out(nodes: CacheNodes, reader: Any) -> None:
    await nodes.start(4)
    first, *others = [node for node in nodes.all if node is not nodes.keeper(URL)]
    await first.cache.acquire(DATA)
    await first.stop()
    await others[0].cache.acquire(DATA)
    await others[1].cache.acquire(DATA)
    assert reader.reads == [URL, URL], "the third one asks the second"


async def test_without_the_keeper_another_is_asked(nodes: CacheNodes, reader: Any) -> None:
    await nodes.start(4)
    keeper = nodes.keeper(URL)
    others = [node for node in nodes.all if node is not keeper]
    await keeper.stop()
    for node in others:
        await node.cache.acquire(DATA)
    assert reader.reads == [URL]


async def test_an_evicted_artifact_is_asked_of_the_next(nodes: CacheNodes, reader: Any) -> None:
    await nodes.start(3)
    for node in nodes.all[:2]:
        await node.cache.acquire(DATA)
    artifact = next(iter(nodes[0].cache._in_use.values()))
    await nodes[0].cache.release(artifact, keep=False)
    await nodes[2].cache.acquire(DATA)
    assert reader.reads == [URL]
    assert "n0" not in nodes.keeper(URL).directory.holders(URL)


async def test_what_is_read_stays_until_it_is_read(
    nodes: CacheNodes, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.start(2)
    artifact = await nodes[0].cache.acquire(DATA)
    streaming, go_on = asyncio.Event(), asyncio.Event()
    real = in_thread

    async def held_up(work: Any) -> Any:
        streaming.set()
        await go_on.wait()
        return await real(work)

    monkeypatch.setattr(routes_module, "in_thread", held_up)
    fetching = asyncio.create_task(nodes[1].cache.acquire(DATA))
    await streaming.wait()
    await nodes[0].cache.release(artifact, keep=False)
    assert artifact.folder.exists()
    go_on.set()
    await fetching
    assert reader.reads == [URL]
    await eventually(lambda: not artifact.users)


async def test_who_waits_for_a_node_that_fails_asks_another(
    nodes: CacheNodes, reader: Any, make_archive: Any
) -> None:
    await nodes.start(3)
    reader.gate = asyncio.Event()
    first = asyncio.create_task(nodes[0].cache.acquire(DATA))
    await reader.reading.wait()
    second = asyncio.create_task(nodes[1].cache.acquire(DATA))
    await eventually(lambda: nodes[1].fetcher._waits)
    nodes[0].cache._fetching[next(iter(nodes[0].cache._fetching))].cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await eventually(lambda: len(reader.reads) == 2)
    reader.gate.set()
    assert ((await second).folder / "weights").read_bytes() == CONTENT


async def test_who_waits_for_a_node_that_gets_nothing_from_the_store_asks_it_itself(
    nodes: CacheNodes,
    reader: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fetcher_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(fetcher_module, "PATIENCE_SECONDS", 0.001)
    await nodes.start(3)
    reader.gate = gate = asyncio.Event()
    slow = asyncio.create_task(nodes[0].cache.acquire(DATA))
    await reader.reading.wait()
    reader.gate = None
    for node in nodes.all[1:]:
        artifact = await node.cache.acquire(DATA)
        assert (artifact.folder / "weights").read_bytes() == CONTENT
    assert reader.reads == [URL, URL], "the third one has it from the second"
    assert not slow.done()
    assert "still fetching the artifact itself, and not quickly" in caplog.text
    gate.set()
    await slow


async def test_how_far_a_copy_is_passes_from_node_to_node(
    nodes: CacheNodes, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "POLL_SECONDS", 0.01)
    await nodes.start(4)
    reader.gate = asyncio.Event()
    fetches = [asyncio.create_task(nodes[0].cache.acquire(DATA))]
    await reader.reading.wait()
    (name,) = nodes[0].cache._fetching
    nodes[0].cache._from_store[name].bytes = 1000
    for node in nodes.all[1:]:
        fetches.append(asyncio.create_task(node.cache.acquire(DATA)))
        await eventually(lambda node=node: node.fetcher.waiting(name).received_bytes == 1000)
    assert nodes[3].fetcher.waiting(name).waits_for == ("n1", "n0")
    reader.gate.set()
    await asyncio.gather(*fetches)
    assert reader.reads == [URL]
    assert nodes[0].cache.received_bytes(name) is None


def has_stopped(growth: CopyGrowth, received: int | None, now: float, hops: int = 0) -> bool:
    state = ArtifactState(waits_for=("x",) * hops, received_bytes=received)
    return growth.has_stopped(state, now)


def test_a_copy_that_grows_is_waited_for_as_long_as_it_takes() -> None:
    growth = CopyGrowth(0)
    for second in range(0, 7201, 10):
        assert not has_stopped(growth, second * SLOWEST_COPY_BYTES_PER_SECOND, second)
    last = 7200 * SLOWEST_COPY_BYTES_PER_SECOND
    assert not has_stopped(growth, last, 7200 + PATIENCE_SECONDS)
    assert has_stopped(growth, last, 7201 + PATIENCE_SECONDS)


def test_a_trickle_is_no_growth() -> None:
    growth = CopyGrowth(0)
    assert not has_stopped(growth, 0, 0)
    assert has_stopped(growth, 1000, PATIENCE_SECONDS + 1)


def test_the_node_next_to_the_slow_one_gives_up_first() -> None:
    near, far = CopyGrowth(0), CopyGrowth(0)
    assert not has_stopped(near, 0, 0)
    assert not has_stopped(far, 0, 0, hops=1)
    assert has_stopped(near, 0, PATIENCE_SECONDS + 1)
    assert not has_stopped(far, 0, PATIENCE_SECONDS + 1, hops=1)
    # The near one reads the store itself: its copy begins.
    assert has_stopped(far, 0, 2 * PATIENCE_SECONDS + 1, hops=1)


def test_unpacking_and_older_nodes_have_a_longer_time() -> None:
    growth = CopyGrowth(0)
    assert not has_stopped(growth, 7, 5)
    assert not has_stopped(growth, None, 100)
    assert not has_stopped(growth, None, 100 + LONGEST_WAIT_SECONDS)
    assert has_stopped(growth, None, 101 + LONGEST_WAIT_SECONDS)


async def test_two_nodes_never_wait_for_each_other(nodes: CacheNodes, reader: Any) -> None:
    await nodes.start(2)
    name = (await nodes[0].cache.acquire(DATA)).name
    nodes[1].fetcher._waits[name] = ArtifactState(waits_for=("n0",))
    nodes[1].cache._fetching[name] = asyncio.create_task(asyncio.sleep(0))
    nodes[1].cache.wait_for_fetch = _at_once  # type: ignore[assignment]
    address = nodes[1].address
    with pytest.raises(NeighbourError, match="waits for this node"):
        await nodes[0].fetcher._wait_until_there("n1", address, name)


async def test_all_turns_taken_means_another_source(
    nodes: CacheNodes, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_module, "SERVED_AT_ONCE", 0)
    monkeypatch.setattr(routes_module, "TURN_SECONDS", 0.01)
    await nodes.start(2)
    artifact = await nodes[0].cache.acquire(DATA)
    await nodes[1].cache.acquire(DATA)
    assert reader.reads == [URL, URL]
    assert artifact.users == 1


async def test_names_are_no_paths(nodes: CacheNodes) -> None:
    await nodes.start(2)
    (nodes[0].folder / "secret").write_bytes(b"no")
    for name in ("..", "%2e%2e", "..%2fsecret", "a" * 40):
        with pytest.raises((NotFound, Unavailable)):
            await nodes[1].calls.ask(
                "n0", nodes[0].address, f"/artifacts/{name}/content", dict, timeout_seconds=5
            )


async def test_only_members_of_the_cluster_are_served(nodes: CacheNodes, tmp_path: Any) -> None:
    await nodes.start(1)
    stranger = CacheNodes(tmp_path / "other", nodes.reader)
    await stranger.start(1)
    try:
        with pytest.raises(Unavailable):
            await stranger[0].calls.ask(
                "n0", nodes[0].address, "/artifact-directory?url=x", dict, timeout_seconds=5
            )
    finally:
        await stranger[0].stop()


async def test_holders_are_found_from_any_node(nodes: CacheNodes) -> None:
    await nodes.start(3)
    await nodes[1].cache.acquire(DATA)
    assert [await node.fetcher.holders(URL) for node in nodes.all] == [("n1",)] * 3
    assert await nodes[0].fetcher.holders("s3://bucket/other") == ()


async def test_a_node_of_its_own_asks_nobody(nodes: CacheNodes, reader: Any) -> None:
    await nodes.start(1)
    nodes[0].calls = None  # type: ignore[assignment]
    await nodes[0].cache.acquire(DATA)
    assert reader.reads == [URL]


async def test_what_is_missing_is_missing(nodes: CacheNodes) -> None:
    await nodes.start(2)
    with pytest.raises(ArtifactMissing):
        await nodes[0].cache.acquire(ModelData(parse_location("s3://bucket/nothing")))


async def _at_once(name: str, seconds: float) -> None: ...
