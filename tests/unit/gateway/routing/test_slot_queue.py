"""The slot queue of a variant: who goes next, and that everybody does."""

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.gateway.routing.inflight import create_inflight_table, open_inflight_table
from sagehen.gateway.routing.slot_queue import MAX_OVERTAKEN, SlotQueue


@dataclass(eq=False)
class Place:
    """An instance."""

    column: int | None = 0
    is_free: bool = False


@dataclass
class Variant:
    instances: list[Place]

    @property
    def local(self) -> list[Place]:
        return self.instances


@dataclass(eq=False)
class Waiter:
    number: int
    house: "Lines"
    at: int = 0
    home: Place | None = None
    avoids: Place | None = None
    waiting_since: float = 1.0

    def can_use(self, place: Place) -> bool:
        return place is not self.avoids

    def prefers(self, place: Place) -> bool:
        return self.home in (None, place)

    def slot_available(self) -> None:
        usable = [one for one in self.house.places if one.is_free and self.can_use(one)]
        (self.home if self.home in usable else usable[0]).is_free = False
        self.house.served.append((self.at, self.number))

    def no_usable_instance(self) -> None:
        self.house.turned_away.append(self.number)


@dataclass
class Lines:
    """The slot queues of several gateways before the same instances."""

    path: Path
    places: list[Place]
    gateways: int = 1
    served: list[tuple[int, int]] = field(default_factory=list)
    turned_away: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        create_inflight_table(self.path, self.gateways)
        self.lines = [
            SlotQueue(open_inflight_table(self.path, row)) for row in range(self.gateways)
        ]
        for line in self.lines:
            line.update(Variant(self.places))

    def join(self, number: int, at: int = 0, **more) -> Waiter:
        one = Waiter(number, self, at, **more)
        self.lines[at].add(one)
        return one

    async def free(self, place: int = 0) -> None:
        self.places[place].is_free = True
        for line in self.lines:
            line.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.served]


@pytest.fixture
def make(tmp_path: Path):
    return lambda places=1, **more: Lines(
        tmp_path / "board", [Place(column=number) for number in range(places)], **more
    )


steps = st.lists(st.sampled_from(["join", "join", "free", "leave"]), max_size=40)


@settings(deadline=None)
@given(steps)
def test_first_come_first_served(happened):
    async def play() -> None:
        lines = Lines(Path(folder) / "board", [Place()])
        waiting: list[Waiter] = []
        expected: list[int] = []
        for number, what in enumerate(happened):
            if what == "join":
                waiting.append(lines.join(number))
            elif what == "leave" and waiting:
                lines.lines[0].remove(waiting.pop(len(waiting) // 2))
            elif what == "free" and waiting:
                expected.append(waiting.pop(0).number)
                await lines.free()
            assert lines.numbers == expected
            assert lines.lines[0].length == len(waiting)

    with TemporaryDirectory() as folder:
        asyncio.run(play())


async def test_who_had_a_slot_without_use_goes_before_the_others(make):
    lines = make()
    lines.join(1)
    lines.lines[0].add(Waiter(2, lines), at_front=True)
    await lines.free()
    assert lines.numbers == [2]


async def test_one_that_cannot_use_what_is_free_holds_nobody_up(make):
    lines = make(places=2)
    lines.join(1, avoids=lines.places[0])
    lines.join(2)
    await lines.free(0)
    assert lines.numbers == [2]
    await lines.free(1)
    assert lines.numbers == [2, 1]


async def test_a_model_goes_to_its_holder_but_nobody_waits_for_ever(make):
    lines = make(places=2)
    here, there = lines.places
    lines.join(0, home=there)
    for number in range(1, 2 * MAX_OVERTAKEN):
        lines.join(number, home=here)
        await lines.free(0)
    assert lines.numbers.index(0) == MAX_OVERTAKEN


async def test_without_a_holder_free_the_first_takes_what_there_is(make):
    lines = make(places=2)
    lines.join(0, home=lines.places[1])
    await lines.free(0)
    assert lines.numbers == [0]


async def test_a_slot_is_left_to_the_gateway_where_somebody_waited_longer(make):
    lines = make(gateways=2)
    lines.join(1, at=0, waiting_since=20.0)
    lines.join(2, at=1, waiting_since=10.0)
    await lines.free()
    assert lines.served == [(1, 2)]
    await lines.free()
    assert lines.served == [(1, 2), (0, 1)]


async def test_a_slot_that_another_gateway_frees_is_noticed(make, eventually):
    lines = make(gateways=2)
    lines.join(1)
    await asyncio.sleep(0)
    assert lines.numbers == []
    lines.places[0].is_free = True
    await eventually(lambda: lines.numbers)
    assert lines.numbers == [1]


async def test_a_gateway_that_does_not_want_its_turn_holds_nobody_up(make, eventually):
    lines = make(gateways=2)
    lines.lines[1]._inflight.publish_oldest_waiter(0, 5)
    lines.join(1)
    await lines.free()
    assert lines.numbers == []
    await eventually(lambda: lines.numbers)
    assert lines.numbers == [1]


async def test_a_newcomer_goes_behind_those_at_other_gateways(make):
    lines = make(gateways=2)
    assert not lines.lines[0].must_queue
    one = lines.join(1, at=1)
    assert lines.lines[0].must_queue
    lines.lines[1].remove(one)
    assert not lines.lines[0].must_queue


async def test_no_gateway_starves_another(make, eventually):
    """Both always have somebody waiting; the slot frees at the first gateway every time."""
    lines = make(gateways=2)
    times = itertools.count(1.0)
    for number in range(200):
        for at in (0, 1):
            while lines.lines[at].length < 3:
                lines.join(number, at=at, waiting_since=next(times))
        before = len(lines.served)
        lines.places[0].is_free = True
        lines.lines[0].wake()
        await eventually(lambda before=before: len(lines.served) > before)
    assert 80 <= sum(at == 0 for at, _ in lines.served) <= 120


async def test_who_can_go_nowhere_any_more_is_told(make):
    lines = make(places=2)
    kept, _ = lines.places
    lines.join(1)
    lines.join(2, avoids=kept)
    lines.lines[0].update(Variant([kept]))
    assert lines.turned_away == [2]
    assert lines.lines[0].length == 1
    await lines.free(lines.places.index(kept))
    assert lines.numbers == [1]


async def test_nobody_waits_for_a_variant_that_is_gone(make):
    lines = make(gateways=2)
    lines.join(1)
    lines.join(2)
    lines.lines[0].close()
    assert lines.turned_away == [1, 2]
    assert not lines.lines[1].must_queue


async def test_a_request_of_another_node_takes_its_place_by_age(make):
    lines = make()
    for number, since in ((1, 1.0), (2, 2.0), (3, 3.0)):
        lines.join(number, waiting_since=since)
    lines.lines[0].add_by_age(Waiter(9, lines, waiting_since=1.5))
    lines.lines[0].add_by_age(Waiter(8, lines, waiting_since=5.0))
    for _ in range(5):
        await lines.free()
    assert lines.numbers == [1, 9, 2, 3, 8]
