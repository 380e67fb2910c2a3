"""Requests sent before the answers to those before them: each is taken up when the last is over."""

import asyncio

from sagehen.frame.routes import Route


async def test_the_next_request_finds_what_the_one_before_it_held_free(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(max_queued_invocations=1)
    client = await house.connect()
    client.send(house.signed(b"1") + house.signed(b"2") + house.signed(b"3"))
    async with asyncio.timeout(120):
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]


async def test_a_request_that_cannot_be_handled_costs_the_one_before_it_no_slot(
    house, variant, echo, eventually, monkeypatch
):
    house.route(variant(await house.fake(echo)))
    await house.start()

    def fail(*_):
        raise RuntimeError("Broken on purpose.")

    client = await house.connect()
    monkeypatch.setattr(house.gateway._context.sessions, "find", fail)
    client.send(house.signed(b"1") + house.signed(b"2", X_Amzn_SageMaker_Session_Id="one"))
    async with asyncio.timeout(120):
        assert (await client.answer()).status == 200
        assert await client.ended()
    assert house.outstanding() == 0


async def test_one_who_is_turned_away_leaves_the_table_whole(house, variant, eventually):
    """Its connection's next request comes while the new table is put in force."""
    release = asyncio.Event()

    async def held(asked):
        await release.wait()
        return 200, {}, b""

    container = await house.fake(held)
    old = variant(container, slots=1)
    house.route(old)
    await house.start()
    first, second = await house.connect(), await house.connect()
    first.send(house.signed())
    await eventually(lambda: container.asked)
    second.send(house.signed() + house.signed(path="/endpoints/zeal/invocations"))
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.table(
        Route(endpoint_name="price", variants=(variant(),)),
        Route(endpoint_name="zeal", variants=(variant(container, slots=8),)),
    )
    async with asyncio.timeout(120):
        assert (await second.answer()).status == 503
        release.set()
        assert (await second.answer()).status == 200
    assert (await house.invoke(path="/endpoints/zeal/invocations")).status == 200
