"""Which instance gets the next request."""

import asyncio

import pytest

from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.transform.runner.instances import FIRST_PAUSE_SECONDS, Instances
from sagehen.services.sagemaker.transform.runner_messages import InstanceAddress
from support.clock import SteppedClock
from support.transform_runs import Container, QuickClock

A, B = (InstanceAddress(instance_id=name, address=f"link:{name}") for name in "ab")


async def nothing(payload: bytes) -> bytes:
    return payload


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Held:
    """Requests that hold a slot each until they are let go, in the order in which they got it."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self.order: list[tuple[str, str]] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, is_urgent: bool = False) -> None:
        self._gates[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._hold(name, is_urgent))
        await turns()

    async def end(self, name: str) -> None:
        self._gates[name].set()
        await self._tasks[name]
        await turns()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def _hold(self, name: str, is_urgent: bool) -> None:
        async with self._instances.slot(is_urgent) as instance:
            self.order.append((name, instance.id))
            await self._gates[name].wait()


@pytest.fixture
def instances() -> Instances:
    async def two_slots(address: InstanceAddress) -> int:
        return 2

    return Instances(QuickClock(), two_slots, lambda *_: Container(nothing))


async def test_requests_are_spread_over_all(instances: Instances) -> None:
    instances.update([A, B])
    await turns()
    held = Held(instances)
    for name in "1234":
        await held.begin(name)
    assert sorted(instance for _, instance in held.order) == ["a", "a", "b", "b"]
    assert {instance for _, instance in held.order[:2]} == {"a", "b"}
    for name in "1234":
        await held.end(name)


async def test_who_waits_is_served_in_turn_but_for_urgent_requests(instances: Instances) -> None:
    instances.update([A])
    await turns()
    held = Held(instances)
    for name in ("1", "2", "3", "4"):
        await held.begin(name)
    await held.begin("again", is_urgent=True)
    await held.cancel("3")
    for name in ("1", "2", "again", "4"):
        await held.end(name)
    assert [name for name, _ in held.order] == ["1", "2", "again", "4"]
    assert next(iter(instances._instances.values())).free == 2


async def test_a_new_instance_serves_those_who_wait(instances: Instances) -> None:
    held = Held(instances)
    await held.begin("1")
    assert held.order == []
    instances.update([B])
    await turns()
    assert held.order == [("1", "b")]
    await held.end("1")


async def test_a_removed_instance_gets_nothing_more(instances: Instances) -> None:
    instances.update([A])
    await turns()
    held = Held(instances)
    await held.begin("1")
    instances.update([B])
    await turns()
    await held.begin("2")
    await held.end("1")
    await held.begin("3")
    await held.begin("4")
    assert held.order == [("1", "a"), ("2", "b"), ("3", "b")]
    assert instances.slots == 2
    for name in "234":
        await held.end(name)


@pytest.mark.parametrize("is_told", [True, False])
async def test_an_unreachable_instance_pauses_until_it_is_ready_again(is_told: bool) -> None:
    async def two_slots(address: InstanceAddress) -> int:
        return 2

    clock = SteppedClock()
    instances = Instances(clock, two_slots, lambda *_: Container(nothing))
    instances.update([A])
    await turns()
    (instance,) = instances._instances.values()
    instances.unreachable(instance)
    held = Held(instances)
    await held.begin("1")
    assert held.order == []
    if is_told:
        instances.update([A])
    else:
        clock.advance(FIRST_PAUSE_SECONDS)
    await turns()
    assert held.order == [("1", "a")]
    await held.end("1")


async def test_an_instance_that_comes_back_at_once_is_asked_once_more() -> None:
    asked = 0

    async def count(address: InstanceAddress) -> int:
        nonlocal asked
        asked += 1
        await turns(2)
        return 1

    instances = Instances(QuickClock(), count, lambda *_: Container(nothing))
    instances.update([A])
    await turns(1)
    instances.update([])
    instances.update([A])
    await turns(1)
    instances.update([A])
    await turns(10)
    assert (asked, instances.slots) == (2, 1)


async def test_an_instance_is_asked_until_it_answers() -> None:
    asked = 0

    async def third_time(address: InstanceAddress) -> int:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise Unavailable("not yet")
        return 1

    instances = Instances(QuickClock(), third_time, lambda *_: Container(nothing))
    instances.update([A])
    await turns(20)
    assert (asked, instances.slots) == (3, 1)
