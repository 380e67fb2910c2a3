"""Stores of offline results that one node has built, and all answer from."""

from pathlib import Path

import pytest

from sagehen.agent.neighbours.result_stores import FORGET_SECONDS
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import NotFound
from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.offline_results.store import ResultStore, write_store
from sagehen.frame.routes import OfflineRoute, Route, RouteFileReader, VariantRoute
from support.fixtures.neighbours import CacheNode, CacheNodes

FILE = "d-1.all.0.db"
RESULTS = OfflineResults(source="s3://results/job/", key="0", request_key="0")


def routes(*files: str) -> dict[str, Route]:
    variants = tuple(
        VariantRoute(
            name=f"v{number}",
            weight=1,
            instances=(),
            offline_results=OfflineRoute(file=file, results=RESULTS),
        )
        for number, file in enumerate(files)
    )
    return {"e": Route(endpoint_name="e", variants=variants)}


def build(node: CacheNode, file: str = FILE) -> Path:
    path = node.results / file
    write_store(path, [(b"7", b"seven"), (b"8", b"eight")], "print", 5.0)
    return path


def names(node: CacheNode) -> set[str]:
    return {path.name for path in node.results.iterdir()}


@pytest.fixture
async def nodes(cache_nodes: CacheNodes) -> CacheNodes:
    """n1 leads, and has built the store."""
    await cache_nodes.start(3)
    build(cache_nodes[1])
    cache_nodes.tell(routes(FILE), leader="n1")
    return cache_nodes


async def test_each_node_gets_what_the_leader_has_built(nodes: CacheNodes) -> None:
    for node in nodes.all:
        assert await node.stores.look()
        assert ResultStore(node.results / FILE).get(b"7") == b"seven"
    assert names(nodes[1]) == {FILE}, "it is no copy"
    assert names(nodes[0]) == {FILE, f"{FILE}.copied"}


async def test_gateways_learn_that_a_store_has_come(nodes: CacheNodes) -> None:
    reader = RouteFileReader(nodes[0].folder / "routes.json", SYSTEM)
    assert reader.refresh()
    assert not reader.refresh()
    await nodes[0].stores.look()
    assert reader.refresh(), "a gateway tries again with each new table"
    await nodes[0].stores.look()
    assert not reader.refresh(), "nothing is new"


async def test_without_the_leader_another_node_gives_its_copy(nodes: CacheNodes) -> None:
    await nodes[0].stores.look()
    await nodes[1].stop()
    assert await nodes[2].stores.look()
    assert FILE in names(nodes[2])


async def test_what_no_node_has_is_asked_for_again(nodes: CacheNodes, caplog) -> None:
    nodes.tell(routes("d-1.all.1.db"), leader="n1")
    assert not await nodes[0].stores.look()
    assert names(nodes[0]) == set()
    assert "No node gives a store" in caplog.text
    build(nodes[1], "d-1.all.1.db")
    assert await nodes[0].stores.look()


async def test_a_store_that_is_cut_short_is_not_used(nodes: CacheNodes) -> None:
    path = nodes[1].results / FILE
    path.write_bytes(path.read_bytes()[:-1])
    assert not await nodes[0].stores.look()
    assert names(nodes[0]) == set()


async def test_only_copies_are_removed_and_only_after_a_while(nodes: CacheNodes) -> None:
    own = build(nodes[0], "d-9.all.0.db")
    await nodes[0].stores.look()
    nodes.tell(routes("d-9.all.0.db"), leader="n0")
    await nodes[0].stores.look()
    nodes[0].clock.seconds += FORGET_SECONDS - 1
    await nodes[0].stores.look()
    assert FILE in names(nodes[0])
    nodes.tell({}, leader="n0")
    nodes[0].clock.seconds += 1
    await nodes[0].stores.look()
    nodes[0].clock.seconds += FORGET_SECONDS
    await nodes[0].stores.look()
    assert names(nodes[0]) == {own.name}, "control has built it, and sees to it"


async def test_before_the_first_table_nothing_is_removed(cache_nodes: CacheNodes) -> None:
    await cache_nodes.start(1)
    node = cache_nodes[0]
    (node.folder / "routes.json").unlink()
    build(node)
    (node.results / f"{FILE}.copied").touch()
    for _ in range(2):
        assert await node.stores.look()
        node.clock.seconds += FORGET_SECONDS
    assert FILE in names(node)


@pytest.mark.parametrize("name", ["..", "%2e%2e%2frest.db", "rest", ".hidden.db", "none.db"])
async def test_names_are_no_paths(nodes: CacheNodes, name: str) -> None:
    for hidden in ("rest.db", "offline-results/rest", "offline-results/.hidden.db"):
        (nodes[1].folder / hidden).write_bytes(b"no")
    with pytest.raises(NotFound):
        await nodes[0].calls.ask(
            "n1", nodes[1].address, f"/offline-results/{name}", dict, timeout_seconds=5
        )
