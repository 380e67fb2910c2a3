"""Requests that find no free slot, from the caller's side."""

import asyncio

import pytest

from sagehen.frame.routes import InstanceRoute, VariantRoute
from sagehen.frame.routing import rank_by_affinity


class Held:
    """A container that answers when it is told to."""

    def __init__(self) -> None:
        self.held: asyncio.Queue[asyncio.Future] = asyncio.Queue()
        self.working = 0
        self.most = 0

    async def answer(self, asked):
        waiting = asyncio.get_running_loop().create_future()
        self.held.put_nowait(waiting)
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await waiting
        finally:
            self.working -= 1
        return 200, {}, asked.body

    async def let_go(self) -> None:
        """Answer what has waited longest, or else what comes next."""
        (await self.held.get()).set_result(None)


def one_slot_each(*fakes, **more) -> VariantRoute:
    instances = tuple(
        InstanceRoute(
            instance_id=f"i-{number}", address=fake.address, slots=1, inflight_column=number
        )
        for number, fake in enumerate(fakes)
    )
    return VariantRoute(name="AllTraffic", weight=1, instances=instances, **more)


@pytest.fixture
def queued(house):
    """`queued()`: how many wait, as is counted; nobody any more when the test has ended."""

    def count() -> int:
        counted = sum(one.queued.now for one in house.gateway._counters._variants.values())
        assert counted == house.gateway._routes.queued
        return counted

    yield count
    assert count() == 0


async def test_a_request_waits_for_whichever_instance_frees_first(house, eventually, queued):
    first, second = Held(), Held()
    one, two = await house.fake(first.answer), await house.fake(second.answer)
    house.route(one_slot_each(one, two))
    await house.start()
    calls = [asyncio.create_task(house.invoke(b"%d" % number)) for number in range(2)]
    await eventually(lambda: first.working and second.working)
    late = [asyncio.create_task(house.invoke(b"late %d" % number)) for number in range(2)]
    await eventually(lambda: queued() == 2)
    await second.let_go()
    await eventually(lambda: len(two.asked) == 2)
    await second.let_go()
    await eventually(lambda: len(two.asked) == 3)
    assert len(one.asked) == 1
    await second.let_go()
    await first.let_go()
    answers = await asyncio.gather(*calls, *late)
    assert [one.status for one in answers] == [200] * 4
    assert (first.most, second.most) == (1, 1)
    assert (queued(), house.outstanding()) == (0, 0)


async def test_how_many_wait_is_told_once_a_second(house, eventually, queued):
    def told() -> dict[str, int] | None:
        return house.told and house.told["variants"][0]["QueuedRequests"]

    await house.control(lambda asked: (200, {}, b""))
    held = Held()
    house.route(one_slot_each(await house.fake(held.answer)))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(3)]
    await eventually(lambda: told() == {"now": 2, "lowest": 2, "highest": 2})
    for _ in calls:
        await held.let_go()
    assert [one.status for one in await asyncio.gather(*calls)] == [200] * 3
    await eventually(lambda: told() == {"now": 0, "lowest": 0, "highest": 0})


async def test_a_client_that_goes_leaves_the_line(house, eventually, queued):
    held = Held()
    fake = await house.fake(held.answer)
    house.route(one_slot_each(fake))
    await house.start()
    working = asyncio.create_task(house.invoke())
    await eventually(lambda: held.working)
    impatient = await house.connect()
    impatient.send(house.signed(b"impatient"))
    await eventually(lambda: queued() == 1)
    impatient.close()
    await eventually(lambda: queued() == 0)
    await held.let_go()
    assert (await working).status == 200
    assert len(fake.asked) == 1


async def test_who_waits_too_long_is_told_that_it_timed_out(house, eventually, queued, limits_met):
    held = Held()
    house.route(one_slot_each(await house.fake(held.answer)))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: queued() == 1)
    house.clock.advance(61)
    for got in await asyncio.gather(*calls):
        assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")
        assert "timed out" in got.json["OriginalMessage"]
    assert (queued(), house.outstanding()) == (0, 0)
    assert limits_met() == {"invocation_timeout": 2}


async def test_the_line_has_an_end(house, eventually, queued, limits_met):
    held = Held()
    house.route(one_slot_each(await house.fake(held.answer)))
    await house.start(max_queued_invocations=2)
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: queued() == 1)
    assert (await house.invoke()).status == 503
    for _ in calls:
        await held.let_go()
    assert [got.status for got in await asyncio.gather(*calls)] == [200, 200]
    assert limits_met() == {"queue": 1}


async def test_a_new_instance_takes_who_waits(house, eventually, queued, echo):
    held = Held()
    slow = await house.fake(held.answer)
    house.route(one_slot_each(slow))
    await house.start()
    working = asyncio.create_task(house.invoke())
    await eventually(lambda: held.working)
    waiting = asyncio.create_task(house.invoke(b"waiting"))
    await eventually(lambda: queued() == 1)
    house.route(one_slot_each(slow, await house.fake(echo)))
    assert (await waiting).body == b"waiting"
    await held.let_go()
    assert (await working).status == 200


async def test_a_dead_instance_loses_nobody_who_waits(house, eventually, queued):
    held = Held()
    live = await house.fake(held.answer)
    dead = InstanceRoute(instance_id="i-9", address=f"unix:{house.home.run}/none.sock", slots=1)
    variant = one_slot_each(live)
    house.route(VariantRoute(name="AllTraffic", weight=1, instances=(dead, *variant.instances)))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(6)]
    for _ in calls:
        await held.let_go()
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 6
    assert held.most == 1


async def test_another_gateways_requests_take_slots_too(house, eventually, queued, echo):
    fake = await house.fake(echo)
    house.route(one_slot_each(fake))
    await house.start()
    other = house.inflight_table(row=1)
    other.increment(0)
    waiting = asyncio.create_task(house.invoke())
    await eventually(lambda: queued() == 1)
    assert fake.asked == []
    other.decrement(0)
    assert (await waiting).status == 200


async def test_a_model_that_waits_goes_to_its_holder(house, eventually, queued):
    """The line is first come first served, but not so that models are loaded here and there."""
    held = Held(), Held()
    fakes = [await house.fake(one.answer) for one in held]
    loads = []

    def load(asked):
        if asked.path.endswith("/touch"):
            return 204, {}, b""
        loads.append(asked.path.split("/")[2])
        return 200, {}, b'{"model_name": "m", "hit": false}'

    await house.agent(load)
    house.route(one_slot_each(*fakes, multi_model=True))
    await house.start()
    here, there = (
        next(
            name for name in map(str, range(99)) if rank_by_affinity(["i-0", "i-1"], name)[0] == at
        )
        for at in (0, 1)
    )

    def call(model: str) -> asyncio.Task:
        return asyncio.create_task(house.invoke(X_Amzn_SageMaker_Target_Model=model))

    calls = [call(here), call(there)]
    await eventually(lambda: held[0].working and held[1].working)
    for length, model in enumerate((here, there), start=1):
        calls.append(call(model))
        await eventually(lambda length=length: queued() == length)
    await held[1].let_go()
    await eventually(lambda: len(fakes[1].asked) == 2)
    await held[0].let_go()
    await eventually(lambda: len(fakes[0].asked) == 2)
    for one in held:
        await one.let_go()
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 4
    assert sorted(loads) == ["i-0", "i-1"]


async def test_who_waits_for_a_variant_that_goes_is_told_at_once(house, eventually, queued):
    held = Held()
    fake = await house.fake(held.answer)
    house.route(one_slot_each(fake))
    await house.start()
    working = asyncio.create_task(house.invoke())
    await eventually(lambda: held.working)
    waiting = asyncio.create_task(house.invoke())
    await eventually(lambda: queued() == 1)
    house.route(one_slot_each())
    assert (await waiting).status == 503
    await held.let_go()
    assert (await working).status == 200


async def test_who_waits_in_a_session_whose_instance_goes_is_told_at_once(
    house, eventually, queued
):
    begun = {"X-Amzn-SageMaker-Session-Id": "s-1"}
    held = Held()

    async def answer(asked):
        if asked.fields.get("x-amzn-sagemaker-session-id") == "NEW_SESSION":
            return 200, begun, b""
        return await held.answer(asked)

    one, other = await house.fake(answer), await house.fake(lambda asked: (200, {}, b""))
    house.route(one_slot_each(one))
    await house.start()
    await house.invoke(X_Amzn_SageMaker_Session_Id="NEW_SESSION")
    working = asyncio.create_task(house.invoke(X_Amzn_SageMaker_Session_Id="s-1"))
    await eventually(lambda: held.working)
    waiting = asyncio.create_task(house.invoke(X_Amzn_SageMaker_Session_Id="s-1"))
    await eventually(lambda: queued() == 1)
    house.route(one_slot_each(other))
    got = await waiting
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert "s-1" in got.json["Message"]
    await held.let_go()
    assert (await working).status == 200
