from typing import Any

import pytest

from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.neighbours.holdings import ANNOUNCE_AGAIN_SECONDS
from sagehen.frame.s3_locations import parse_location
from support.clock import HandClock
from support.fixtures.neighbours import CacheNode, CacheNodes

MANY = parse_location("s3://bucket/many/")
SINGLE = ModelData(parse_location("s3://bucket/model.tar.gz"))
PLAIN = ModelData(parse_location("s3://bucket/plain/"), compressed=False)


def of_many(name: str) -> ModelData:
    return ModelData(MANY.below(name), prefix=MANY)


@pytest.fixture
def nodes(cache_nodes: CacheNodes, reader: Any, make_archive: Any) -> CacheNodes:
    for key in ("model.tar.gz", "many/a", "many/b"):
        reader.objects[f"s3://bucket/{key}"] = make_archive(("weights", key.encode()))
    reader.objects["s3://bucket/plain/weights"] = b"1"
    return cache_nodes


async def test_what_is_on_disk_is_listed_and_the_models_of_a_prefix_are_one(
    nodes: CacheNodes, reader: Any
) -> None:
    await nodes.start(1)
    cache, models = nodes[0].cache, nodes[0].models
    single = await cache.acquire(SINGLE)
    await cache.acquire(PLAIN)
    first = await cache.acquire(of_many("a"))
    version = models.version
    second = await cache.acquire(of_many("b"))
    assert models.version == version, "control need not ask again"
    etag = (await reader.head(SINGLE.location)).etag
    listed = {SINGLE.location.url, f"{SINGLE.location.url}#{etag}", PLAIN.location.url, MANY.url}
    assert set(models.list().models) == listed
    await cache.release(first, keep=False)
    assert set(models.list().models) == listed
    await cache.release(second, keep=False)
    await cache.release(single)
    assert set(models.list().models) == listed - {MANY.url}
    assert models.version > version


async def test_what_an_earlier_agent_fetched_is_listed_and_announced(nodes: CacheNodes) -> None:
    await nodes.start(3)
    artifact = await nodes[0].cache.acquire(SINGLE)
    await nodes[0].cache.release(artifact)
    for node in nodes.all:
        node.directory._urls.clear()
    again = CacheNode("n0", nodes[0].folder, nodes.authority, nodes.reader)
    again.listener.close()
    assert SINGLE.location.url in again.models.list().models
    # What a machine of its own fetched has no digest, and is not for others.
    artifact.folder.parent.joinpath("origin").unlink()
    await again.announcer.look()
    assert await nodes[1].fetcher.holders(SINGLE.location.url) == ("n0",)
    calls = again.calls
    again.calls = again.announcer._calls = None  # type: ignore[assignment]
    await again.announcer.look()  # nothing is new
    again.announcer._calls = calls
    alone = CacheNode("n0", nodes[0].folder, nodes.authority, nodes.reader)
    alone.listener.close()
    assert alone.models.list().models == ()
    assert alone.cache.pin(artifact.name) is None


async def test_a_new_node_becomes_keeper_of_what_others_hold(nodes: CacheNodes) -> None:
    await nodes.start(1)
    urls = ["many/a", "many/b", "model.tar.gz"]
    for key in urls:
        await nodes[0].cache.acquire(ModelData(parse_location(f"s3://bucket/{key}")))
    await nodes[0].announcer.look()
    while all(nodes.keeper(f"s3://bucket/{key}") is nodes[0] for key in urls):
        await nodes.start(1)
    await nodes[0].announcer.look()
    for key in urls:
        url = f"s3://bucket/{key}"
        assert nodes.keeper(url).directory.holders(url) == ("n0",)


async def test_while_the_keeper_is_away_the_second_one_knows_what_others_hold(
    nodes: CacheNodes, reader: Any
) -> None:
    await nodes.start(4)
    url = SINGLE.location.url
    keeper = nodes.keeper(url)
    holder, other, *_ = [
        node for node in nodes.all if node.node_id not in nodes[0].nodes.keepers(url)
    ]
    await holder.cache.acquire(SINGLE)
    await holder.announcer.look()
    await keeper.stop()
    assert await other.fetcher.holders(url) == (holder.node_id,)
    await other.cache.acquire(SINGLE)
    assert reader.reads == [url]


async def test_a_keeper_that_was_started_anew_learns_what_others_hold(nodes: CacheNodes) -> None:
    await nodes.start(3)
    url = SINGLE.location.url
    holder = nodes[0]
    holder.announcer._clock = clock = HandClock()
    await holder.cache.acquire(SINGLE)
    await holder.announcer.look()
    for node in nodes.all:
        node.directory._urls.clear()
    clock.seconds += ANNOUNCE_AGAIN_SECONDS - 1
    await holder.announcer.look()
    assert nodes.keeper(url).directory.holders(url) == (), "each look would send everything"
    clock.seconds += 1
    await holder.announcer.look()
    for node_id in holder.nodes.keepers(url):
        node = next(each for each in nodes.all if each.node_id == node_id)
        assert node.directory.holders(url) == ("n0",)


async def test_few_entries_move_when_a_node_comes(nodes: CacheNodes) -> None:
    await nodes.start(8)
    urls = [f"s3://bucket/{number}" for number in range(1000)]
    before = {url: nodes[0].nodes.keepers(url) for url in urls}
    shares = [sum(keepers[0] == node.node_id for keepers in before.values()) for node in nodes.all]
    assert min(shares) > 40
    assert all(len(set(keepers)) == 2 for keepers in before.values())
    await nodes.start(1)
    moved = {url for url in urls if nodes[0].nodes.keepers(url)[0] != before[url][0]}
    assert {nodes[0].nodes.keepers(url)[0] for url in moved} == {"n8"}
    assert len(moved) < 300
