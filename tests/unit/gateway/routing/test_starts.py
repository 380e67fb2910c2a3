"""Calls that wait for an instance to start, from the caller's side and from control's."""

import asyncio

import msgspec
import pytest

from sagehen.frame.routes import OnDemandRoute
from sagehen.gateway.routing.starts import REPEAT_SECONDS, STARTS_PATH

ON_DEMAND = OnDemandRoute()


@pytest.fixture
def starts(house):
    """`await starts()` is control; what it returns lists the messages that control was sent."""

    async def make(status: int = 204) -> list[dict]:
        messages: list[dict] = []

        def answer(asked):
            assert (asked.method, asked.path) == ("POST", STARTS_PATH)
            messages.append(msgspec.json.decode(asked.body))
            return status, {}, b""

        await house.control(answer)
        return messages

    return make


def waiting(calls: int, instances: int = 0) -> dict:
    of_variant = {"endpoint": "price", "variant": "AllTraffic"}
    return {"waiting": [{**of_variant, "calls": calls, "instances": instances}]}


async def test_a_call_waits_for_the_first_instance(house, variant, starts, eventually):
    messages = await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: messages)
    assert messages[0] == waiting(1)
    assert not call.done()
    fake = await house.fake(lambda asked: (200, {}, b"started"))
    house.route(variant(fake, on_demand=ON_DEMAND))
    got = await call
    assert (got.status, got.body) == (200, b"started")
    assert house.outstanding() == 0


async def test_control_is_told_once_for_all_calls_and_again(house, variant, starts, eventually):
    messages = await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(3)]
    await eventually(lambda: house.gateway._routes.queued == 3)
    while not messages or messages[-1] != waiting(3):
        house.clock.advance(REPEAT_SECONDS)
        await asyncio.sleep(0.001)
    house.route(variant(await house.fake(lambda asked: (200, {}, b"")), on_demand=ON_DEMAND))
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 3
    told = len(messages)
    house.clock.advance(10 * REPEAT_SECONDS)
    await eventually(lambda: house.gateway._starts._task is None)
    assert len(messages) == told


async def test_calls_after_an_error_are_asked_for(house, variant, starts, eventually, monkeypatch):
    messages = await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    waits = house.gateway._starts

    def fail():
        raise RuntimeError("once")

    refresh = waits._refresh
    monkeypatch.setattr(waits, "_refresh", fail)
    calls = [asyncio.create_task(house.invoke())]
    await eventually(lambda: waits._task is not None)
    task = waits._task
    assert isinstance((await asyncio.wait([task]))[0].pop().exception(), RuntimeError)
    monkeypatch.setattr(waits, "_refresh", refresh)
    told = len(messages)
    calls.append(asyncio.create_task(house.invoke()))
    await eventually(lambda: len(messages) > told)
    house.route(variant(await house.fake(lambda asked: (200, {}, b"")), on_demand=ON_DEMAND))
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 2


async def test_control_may_be_away(house, variant, starts, eventually):
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    messages = await starts()
    while not messages:
        house.clock.advance(REPEAT_SECONDS)
        await asyncio.sleep(0.001)
    house.route(variant(await house.fake(lambda asked: (200, {}, b"")), on_demand=ON_DEMAND))
    assert (await call).status == 200


async def test_other_variants_do_not_wait(house, variant, starts):
    messages = await starts()
    house.route(variant())
    await house.start()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert messages == []


async def test_they_are_bounded_in_number(house, variant, starts, eventually, limits_met):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start(max_waiting_for_start=2)
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: house.gateway._routes.queued == 2)
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert "max_waiting_for_start" in got.json["Message"]
    assert limits_met() == {"start_queue": 1}
    house.route(variant(await house.fake(lambda asked: (200, {}, b"")), on_demand=ON_DEMAND))
    assert [got.status for got in await asyncio.gather(*calls)] == [200, 200]


async def test_and_in_time(house, variant, starts, eventually, limits_met):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start(start_wait_seconds=180)
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.clock.advance(179)
    await asyncio.sleep(0.3)
    assert not call.done()
    house.clock.advance(2)
    got = await call
    assert got.status == 503
    assert "start_wait_seconds" in got.json["Message"]
    assert limits_met() == {"start_wait": 1}
    assert house.gateway._routes.queued == 0


async def test_the_answer_says_why_the_last_start_failed(house, variant, starts, eventually):
    await starts()
    failed = OnDemandRoute(start_failure="The model does not load.")
    house.route(variant(on_demand=failed))
    await house.start(start_wait_seconds=180)
    for expected in (True, False):
        call = asyncio.create_task(house.invoke())
        await eventually(lambda: house.gateway._routes.queued == 1)
        house.route(variant(on_demand=ON_DEMAND))  # it is tried again
        house.clock.advance(181)
        message = (await call).json["Message"]
        assert ("The last start failed: The model does not load. " in message) is expected
        # One that starts, and goes when it is idle.
        fake = await house.fake(lambda asked: (200, {}, b"started"))
        house.route(variant(fake, on_demand=ON_DEMAND))
        assert (await house.invoke()).status == 200
        house.route(variant(on_demand=ON_DEMAND))
        house.clock.advance(1)  # the table is looked at again


async def test_the_container_has_its_whole_time_after_the_wait(house, variant, starts, eventually):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start(start_wait_seconds=180, invocation_timeout_seconds=60)
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.clock.advance(170)
    never = asyncio.get_running_loop().create_future()

    async def answer(asked):
        await never

    fake = await house.fake(answer)
    house.route(variant(fake, on_demand=ON_DEMAND))
    await eventually(lambda: fake.asked)
    house.clock.advance(55)
    await asyncio.sleep(0.3)
    assert not call.done()
    house.clock.advance(10)
    got = await call
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")


async def test_a_client_that_goes_leaves(house, variant, starts, eventually):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    impatient = await house.connect()
    impatient.send(house.signed())
    await eventually(lambda: house.gateway._routes.queued == 1)
    impatient.close()
    await eventually(lambda: house.gateway._routes.queued == 0)
    await eventually(lambda: house.gateway._starts._task is None)
    assert len(house.gateway._context.active) == 0


async def test_an_endpoint_that_is_deleted_ends_the_wait(house, variant, starts, eventually):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.table()
    assert (await call).status == 503


async def test_a_gateway_that_ends_answers_who_waits(house, variant, starts, eventually):
    await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    await house.stop()
    assert (await call).status == 503


async def test_a_full_instance_asks_for_another(house, variant, starts, eventually):
    messages = await starts()
    release = asyncio.Event()

    async def answer(asked):
        await release.wait()
        return 200, {}, b""

    fake = await house.fake(answer)
    house.route(variant(fake, slots=1, on_demand=ON_DEMAND))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: house.gateway._routes.queued == 1)
    await asyncio.sleep(0.05)
    assert messages == []  # a short wait is no reason
    house.clock.advance(0.2)
    await eventually(lambda: messages)
    assert messages[0] == waiting(1, instances=1)
    release.set()
    assert [got.status for got in await asyncio.gather(*calls)] == [200, 200]


async def test_an_instance_that_refuses_would_refuse_again(house, variant, starts):
    await starts()
    refusing = await house.fake(lambda asked: (503, {"X-Sagehen-Not-Started": "1"}, b""))
    house.route(variant(refusing, on_demand=ON_DEMAND))
    await house.start()
    assert (await house.invoke()).status == 503


async def test_a_wait_goes_on_when_the_instance_goes(house, variant, starts, eventually):
    """One that waits for a slot keeps waiting when its instance has left the routes."""
    await starts()
    fake = await house.fake(lambda asked: asyncio.Event().wait())
    house.route(variant(fake, slots=1, on_demand=ON_DEMAND))
    await house.start()
    first, second = (asyncio.create_task(house.invoke()) for _ in range(2))
    await eventually(lambda: house.gateway._routes.queued == 1)
    house.route(variant(on_demand=ON_DEMAND))
    await eventually(lambda: not house.gateway._routes.get("price").variants[0].instances)
    house.route(variant(await house.fake(lambda asked: (200, {}, b"new")), on_demand=ON_DEMAND))
    done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    assert done.pop().result().body == b"new"
    first.cancel()


async def test_the_wait_for_a_start_is_no_wait_for_a_slot(house, variant, starts, eventually):
    messages = await starts()
    house.route(variant(on_demand=ON_DEMAND))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: house.gateway._routes.queued == 2)
    house.clock.advance(5)
    release = asyncio.Event()

    async def answer(asked):
        await release.wait()
        return 200, {}, b""

    fake = await house.fake(answer)
    house.route(variant(fake, slots=1, on_demand=ON_DEMAND))
    await eventually(lambda: fake.asked)
    house.clock.advance(REPEAT_SECONDS / 5)
    await asyncio.sleep(0.05)
    assert all(each["waiting"][0]["instances"] == 0 for each in messages)
    house.clock.advance(REPEAT_SECONDS)
    await eventually(lambda: messages[-1] == waiting(1, instances=1))
    release.set()
    assert [got.status for got in await asyncio.gather(*calls)] == [200, 200]
