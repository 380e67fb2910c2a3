"""Where many requests go, all in all."""

import asyncio
from collections import Counter

import pytest

from sagehen.frame.routes import InstanceRoute, RoutingStrategy, VariantRoute


async def invoke_many(house, count: int, callers: int = 1) -> Counter:
    """How many each variant has answered; each caller keeps its connection."""
    numbers = iter(range(count))
    answered: Counter = Counter()

    async def call() -> None:
        client = await house.connect()
        for number in numbers:
            client.send(house.signed(b"%d" % number))
            got = await client.answer()
            assert (got.status, got.body) == (200, b"%d" % number)
            answered[got.headers["x-amzn-invoked-production-variant"]] += 1
        client.close()

    await asyncio.gather(*(call() for _ in range(callers)))
    return answered


async def test_variants_get_their_shares(house, variant, echo):
    weights = {"Main": 6, "Second": 3, "Spare": 0, "Third": 1}
    places = {name: await house.fake(echo) for name in weights}
    house.route(*(variant(places[name], name=name, weight=weights[name]) for name in weights))
    await house.start()
    answered = await invoke_many(house, 1000, callers=4)
    assert answered == Counter({name: len(one.asked) for name, one in places.items()})
    assert answered["Spare"] == 0
    # Six standard deviations at most; the chances are drawn from a seed.
    for name, share in (("Main", 0.6), ("Second", 0.3), ("Third", 0.1)):
        assert abs(answered[name] - 1000 * share) < 6 * (1000 * share * (1 - share)) ** 0.5


class Place:
    """A container that takes some turns of the loop for each request."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.working = 0
        self.most = 0

    async def answer(self, asked):
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
        finally:
            self.working -= 1
        return 200, {}, asked.body


@pytest.mark.parametrize("strategy", list(RoutingStrategy))
@pytest.mark.parametrize("slots", [1, 2, 256])
async def test_no_instance_starves_and_none_is_asked_too_much(house, strategy, slots):
    """Four instances, the first of them slow, for ten callers."""
    places = [Place(turns) for turns in (20, 1, 1, 1)]
    fakes = [await house.fake(place.answer) for place in places]
    instances = tuple(
        InstanceRoute(instance_id=f"i-{at}", address=fake.address, slots=slots, inflight_column=at)
        for at, fake in enumerate(fakes)
    )
    house.route(VariantRoute(name="AllTraffic", weight=1, instances=instances, strategy=strategy))
    await house.start()
    await invoke_many(house, 300, callers=10)
    asked = [len(fake.asked) for fake in fakes]
    assert sum(asked) == 300
    assert min(asked) > 10
    assert max(place.most for place in places) <= slots
    assert [house.inflight_table(row=1).outstanding(at) for at in range(4)] == [0] * 4
