"""What callers get whom no instance can answer: offline results where these know the key."""

import asyncio
import gc
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.offline_results.store import write_store
from sagehen.frame.routes import ContainerAddress, ContainerRoute, OfflineRoute

HEADER = "x-sagehen-offline-result"


@pytest.fixture
def offline(house) -> OfflineRoute:
    """A store that knows the key 1."""
    write_store(house.home.offline_results / "d.v.0.db", [(b"1", b"stored")], "f", 0.0)
    results = OfflineResults(source="s3://b/", key="0", request_key="0")
    return OfflineRoute(file="d.v.0.db", results=results)


def is_stored(got) -> bool:
    return (got.status, got.body, got.headers.get(HEADER)) == (200, b"stored\n", "true")


async def test_a_healthy_instance_answers(house, variant, offline):
    house.route(
        variant(await house.fake(lambda asked: (200, {}, b"live")), offline_results=offline)
    )
    await house.start()
    got = await house.invoke()
    assert (got.status, got.body) == (200, b"live")
    assert HEADER not in got.headers


async def test_without_an_instance_known_keys_are_answered(house, variant, offline, eventually):
    house.route(variant(offline_results=offline))
    await house.control(lambda asked: (204, {}, b""))
    await house.start(access_log=True)
    got = await house.invoke()
    assert is_stored(got)
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert got.headers["content-type"] == "text/csv; charset=utf-8"
    await eventually(lambda: house.told and house.told["variants"][0]["OfflineResults"] == 1)
    counts = house.told["variants"][0]
    assert (counts["Invocations"], counts["InvocationModelErrors"]) == (1, 0)
    assert counts["ConcurrentRequestsPerModel"]["now"] == 0
    await eventually(lambda: any("status=200" in line for line in house.written))


async def test_unknown_keys_get_the_usual_error(house, variant, offline):
    house.route(variant(offline_results=offline))
    await house.start()
    got = await house.invoke(b"2,2")
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert HEADER not in got.headers
    got = await house.invoke(Accept="application/json")
    assert got.status == 503


async def test_signature_and_parameters_are_checked_as_always(house, variant, offline):
    house.route(variant(offline_results=offline))
    await house.start()
    assert (await house.invoke(secret="wrong")).status == 403
    refused = await house.invoke(X_Amzn_SageMaker_Target_Variant="other")
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "ValidationError")


async def test_instances_that_cannot_be_reached_are_replaced_by_results(house, variant, offline):
    gone = f"unix:{house.home.run / 'gone.sock'}"
    house.route(variant(gone, gone + "2", offline_results=offline))
    await house.start()
    assert is_stored(await house.invoke())
    assert (await house.invoke(b"2,2")).status == 503
    assert house.outstanding() == 0


async def test_another_instance_is_tried_first(house, variant, offline):
    live = await house.fake(lambda asked: (200, {}, b"live"))
    gone = f"unix:{house.home.run / 'gone.sock'}"
    house.route(variant(gone, live, offline_results=offline))
    await house.start()
    assert [(await house.invoke()).body for _ in range(6)] == [b"live"] * 6


async def test_a_container_that_dies_with_a_request_is_replaced(house, variant, offline):
    container = await house.fake(lambda asked: None)
    house.route(variant(container, offline_results=offline))
    await house.start()
    assert is_stored(await house.invoke())
    got = await house.invoke(b"2,2")
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert house.outstanding() == 0


async def test_a_containers_own_error_is_told(house, variant, offline):
    house.route(variant(await house.fake(lambda asked: (500, {}, b"no")), offline_results=offline))
    await house.start()
    got = await house.invoke()
    assert (got.status, got.json["OriginalMessage"]) == (424, "no")


async def test_an_answer_that_breaks_off_is_cut_off(house, variant, offline):
    """Part of the answer is with the caller: too late for another."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b"x" * 500_000
    sent = asyncio.Event()

    async def half(asked, reader, writer):
        writer.write(head)
        await writer.drain()
        sent.set()

    house.route(
        variant(await house.raw(half, house.home.run / "half.sock"), offline_results=offline)
    )
    await house.start()
    client = await house.connect()
    client.send(house.signed())
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.answer()
    assert sent.is_set()


async def test_streams_get_the_usual_error(house, variant, offline):
    house.route(variant(offline_results=offline))
    await house.start()
    got = await house.invoke(path="/endpoints/price/invocations-response-stream")
    assert got.status == 503


async def test_requests_of_a_session_get_the_usual_error(house, variant, offline):
    house.route(variant(offline_results=offline))
    await house.start()
    got = await house.invoke(X_Amzn_SageMaker_Session_Id="NEW_SESSION")
    assert got.status == 503


async def test_requests_that_wait_are_answered_when_the_last_instance_leaves(
    house, variant, offline, eventually
):
    holding = asyncio.Event()

    async def hold(asked):
        await holding.wait()
        return 200, {}, b"live"

    container = await house.fake(hold)
    house.route(variant(container, slots=1, offline_results=offline))
    await house.start()
    first = asyncio.create_task(house.invoke())
    await eventually(lambda: container.asked)
    waiting = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.route(variant(offline_results=offline))
    assert is_stored(await waiting)
    holding.set()
    assert (await first).body == b"live"


async def test_a_pipeline_whose_container_dies_is_replaced(house, variant, offline):
    first = await house.fake(lambda asked: (200, {}, b"1,2"))
    second = await house.fake(lambda asked: None)
    made = variant(first, offline_results=offline)
    instance = replace(
        made.instances[0],
        containers=(ContainerAddress(first.address), ContainerAddress(second.address)),
    )
    containers = (ContainerRoute("first"), ContainerRoute("second"))
    house.route(replace(made, instances=(instance,), containers=containers))
    await house.start()
    assert is_stored(await house.invoke())
    assert house.outstanding() == 0


async def test_a_new_store_answers_at_once(house, variant, offline):
    house.route(variant(offline_results=offline))
    await house.start()
    assert is_stored(await house.invoke())
    write_store(house.home.offline_results / "d.v.1.db", [(b"1", b"newer")], "g", 0.0)
    newer = OfflineRoute(file="d.v.1.db", results=offline.results)
    house.route(variant(offline_results=newer))
    house.clock.advance(1)
    assert (await house.invoke()).body == b"newer\n"


def is_open(path: Path) -> bool:
    links = Path("/proc/self/fd").iterdir()
    return str(path) in [os.readlink(link) for link in links if link.is_symlink()]


async def test_a_store_is_closed_with_its_variant(house, variant, offline):
    """At once: the disk of a removed store is free only then."""
    store = house.home.offline_results / offline.file
    house.route(variant(offline_results=offline))
    await house.start()
    assert is_stored(await house.invoke())
    assert is_open(store)
    gc.disable()
    try:
        house.route(variant(name="Other"))
        house.clock.advance(1)
        assert (await house.invoke()).status == 503
        assert not is_open(store)
    finally:
        gc.enable()
