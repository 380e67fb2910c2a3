"""What copies may take: time, room and slots."""

import asyncio

from support.shadows import STREAM, STREAM_HEAD, Held, never, ours

FOREVER = asyncio.Event()
"""Held here: the collector would end a task that waits for what nothing else holds."""


async def test_a_shadow_that_hangs_is_given_up_after_a_while(
    house, shadowed, eventually, counts, is_idle
):
    next_one = await house.fake(never)
    await shadowed(next_one)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 3)
    assert counts().in_flight.now == 3
    house.clock.advance(60)
    await eventually(is_idle)
    await eventually(lambda: next_one.lost == 3)
    told = counts()
    assert (told.invocations, told.errors_5xx, told.shadow_copies_dropped) == (3, 3, 0)
    assert told.in_flight.now == 0


async def test_a_shadow_that_does_not_read_holds_nobody_up(
    house, shadowed, eventually, counts, is_idle
):
    connected = asyncio.Event()

    async def deaf(head, reader, writer):
        reader._transport.pause_reading()
        connected.set()
        await FOREVER.wait()

    await shadowed(await house.raw(deaf, house.home.run / "deaf.sock"))
    await ours(house, bytes(8_000_000))
    await ours(house)
    async with asyncio.timeout(120):
        await connected.wait()
    house.clock.advance(60)
    await eventually(is_idle)
    assert counts().errors_5xx == 2


async def test_a_stream_that_has_begun_has_the_time_of_a_stream(
    house, shadowed, eventually, counts, is_idle
):
    speaking = asyncio.Event()

    async def slow(head, reader, writer):
        writer.write(STREAM_HEAD + b"1\r\na\r\n")
        speaking.set()
        await reader.read()

    def has_begun():
        (copy,) = house.gateway._context.shadows._all.copies
        return copy.deadline > house.clock.monotonic() + 60

    await shadowed(await house.raw(slow, house.home.run / "slow.sock"))
    await house.invoke(path=STREAM)
    await eventually(lambda: speaking.is_set() and has_begun())
    house.clock.advance(479)
    house.gateway._context.shadows.expire()
    assert not is_idle()
    house.clock.advance(1)
    await eventually(is_idle)
    assert counts().errors_5xx == 1


async def test_only_a_stream_has_the_time_of_a_stream(house, shadowed, eventually, counts, is_idle):
    async def slow(head, reader, writer):
        writer.write(STREAM_HEAD + b"1\r\na\r\n")
        await reader.read()

    await shadowed(await house.raw(slow, house.home.run / "slow.sock"))
    await ours(house)
    await eventually(lambda: counts().invocations)
    house.clock.advance(60)
    await eventually(is_idle)
    assert counts().errors_5xx == 1


async def test_more_copies_than_are_held_are_dropped(
    house, shadowed, eventually, counts, is_idle, limits_met
):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, settings={"max_shadow_copies": 2})
    for _ in range(5):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 2)
    assert (counts().invocations, counts().shadow_copies_dropped) == (2, 3)
    held.free.set()
    await eventually(is_idle)
    await ours(house)
    await eventually(lambda: len(next_one.asked) == 3)
    assert limits_met() == {"shadow_copies": 3}


async def test_more_data_than_is_held_is_dropped(
    house, shadowed, eventually, counts, is_idle, limits_met
):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, settings={"max_shadow_body_bytes": 400})
    for size in (60, 50, 40):
        await ours(house, bytes(size))
    await eventually(lambda: len(next_one.asked) == 2)
    assert [len(one.body) for one in next_one.asked] == [60, 40]
    assert counts().shadow_copies_dropped == 1
    held.free.set()
    await eventually(is_idle)
    await ours(house, bytes(100))
    await eventually(lambda: len(next_one.asked) == 3)
    assert limits_met() == {"shadow_copies": 1}


async def test_a_shadow_that_hangs_takes_no_room_from_another(
    house, shadowed, variant, production, eventually, counts, echo
):
    other = await house.fake(echo)
    await shadowed(await house.fake(never), settings={"max_shadow_copies": 2})
    for _ in range(3):
        await ours(house)
    assert counts().shadow_copies_dropped == 1
    house.route(variant(production), endpoint="other", shadow=variant(other, name="Other"))
    house.gateway._routes.refresh()
    await ours(house, path="/endpoints/other/invocations")
    await eventually(lambda: other.asked)


async def test_all_shadows_together_have_a_bound(house, shadowed, eventually, counts):
    next_one = await house.fake(never)
    await shadowed(next_one, settings={"max_connections": 2})
    for _ in range(3):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 2)
    assert counts().shadow_copies_dropped == 1


async def test_copies_take_no_room_from_requests(house, shadowed, eventually, limits_met):
    next_one = await house.fake(never)
    await shadowed(next_one, settings={"max_queued_invocations": 1})
    for _ in range(4):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 4)
    assert len(house.gateway._context.shadows._all.copies) == 4
    assert limits_met() == {}


async def test_a_copy_waits_for_a_slot(house, shadowed, eventually, counts, is_idle):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, slots=1)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: house.gateway._routes.queued == 2)
    assert (len(next_one.asked), counts().invocations) == (1, 1)
    held.free.set()
    await eventually(is_idle)
    assert (len(next_one.asked), counts().invocations) == (3, 3)
    assert counts().shadow_copies_dropped == 0


async def test_a_copy_that_waits_in_vain_is_dropped(house, shadowed, eventually, counts, is_idle):
    await shadowed(await house.fake(never), slots=1)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: house.gateway._routes.queued == 2)
    house.clock.advance(60)
    await eventually(is_idle)
    told = counts()
    assert (told.invocations, told.errors_5xx, told.shadow_copies_dropped) == (1, 1, 2)
    assert house.gateway._routes.queued == 0


async def test_the_copies_of_one_that_has_left_are_ended_with_the_gateway(
    house, shadowed, variant, production, eventually
):
    next_one = await house.fake(never)
    await shadowed(next_one)
    await ours(house)
    await eventually(lambda: next_one.asked)
    house.route(variant(production))
    await eventually(lambda: len(list(house.gateway._routes.instances())) == 1)
    assert next_one.lost == 0
    await house.stop()
    await eventually(lambda: next_one.lost == 1)
