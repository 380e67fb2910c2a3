"""Memory for large bodies: first come, first served, within a bound."""

import asyncio

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.body_budget import BodyReservation, ServingBodyBudget
from sagehen.containers.modelserver.serving.server import PIECE_BYTES, RECEIVE_SECONDS
from support.fixtures.modelserver_wires import post, until


class Bodies:
    """Bodies by name; `granted` has the names of those that waited, in order."""

    def __init__(self, bound: int) -> None:
        self.budget = ServingBodyBudget(bound)
        self.granted: list[str] = []

    def enter(self, name: str, size: int) -> BodyReservation:
        return self.budget.reserve(size, lambda: self.granted.append(name))


@pytest.fixture
def bodies() -> Bodies:
    return Bodies(10)


def test_what_fits_is_granted_at_once(bodies: Bodies) -> None:
    assert bodies.enter("a", 6).granted
    assert bodies.enter("b", 4).granted
    assert bodies.granted == [], "only what has waited is called back"
    assert bodies.budget.reserved_bytes == 10


def test_a_lone_body_has_any_size(bodies: Bodies) -> None:
    large = bodies.enter("large", 100)
    assert large.granted
    assert not bodies.enter("next", 1).granted
    large.release()
    assert bodies.granted == ["next"]


def test_the_first_that_waits_is_first_even_if_a_later_one_would_fit(bodies: Bodies) -> None:
    first = bodies.enter("first", 8)
    bodies.enter("large", 5)
    assert not bodies.enter("small", 1).granted
    assert bodies.budget.waiting == 2
    first.release()
    assert bodies.granted == ["large", "small"]


def test_who_no_longer_waits_lets_the_next_in(bodies: Bodies) -> None:
    bodies.enter("first", 8)
    waiting = bodies.enter("large", 5)
    bodies.enter("small", 1)
    waiting.release()
    waiting.release()
    assert (bodies.granted, bodies.budget.reserved_bytes, bodies.budget.waiting) == (
        ["small"],
        9,
        0,
    )


def test_memory_is_released_once(bodies: Bodies) -> None:
    one, _ = bodies.enter("a", 4), bodies.enter("b", 4)
    one.release()
    one.release()
    assert bodies.budget.reserved_bytes == 4


def large(path: str, size: int) -> bytes:
    """The head of a request whose body has `size` bytes."""
    return post(path, b"").replace(b"length: 0", b"length: %d" % size)


@pytest.fixture
def largest(setup, monkeypatch):
    """A body that is as large as one may be, and fills the room."""
    size = PIECE_BYTES + 1
    monkeypatch.setattr("sagehen.containers.modelserver.serving.connection.LARGE_BYTES", 1000)
    setup.server.max_body_bytes = setup.server.body_budget.most_bytes = size
    return size


async def test_a_large_body_waits_for_room_and_small_ones_do_not(setup, largest):
    first, second, small = [await setup.connect() for _ in range(3)]
    first.writer.write(large("/a", largest) + bytes(largest))
    held = await setup.hands.next()
    second.writer.write(large("/echo", largest) + bytes(largest))
    assert (await small.ask(post("/echo", b"x"))).endswith(b"x")
    setup.clock.seconds += 2 * RECEIVE_SECONDS  # whoever is made to wait is not slow
    setup.server.sweep()
    assert setup.server.body_budget.waiting == 1
    held.respond(ModelAnswer(200))
    assert (await first.answer()).startswith(b"HTTP/1.1 200 ")
    assert (await second.answer()).startswith(b"HTTP/1.1 200 ")
    assert setup.server.body_budget.reserved_bytes == 0


async def test_who_gives_up_waiting_for_room_makes_way(setup, largest):
    first, second, third = [await setup.connect() for _ in range(3)]
    first.writer.write(large("/a", largest) + bytes(largest))
    held = await setup.hands.next()
    for wire in second, third:
        wire.writer.write(large("/echo", largest))
        await until(
            lambda wire=wire: setup.server.body_budget.waiting == (1 if wire is second else 2)
        )
    second.writer.close()
    # It is not read from while it waits: its end is found out when it is let in.
    held.respond(ModelAnswer(200))
    third.writer.write(bytes(largest))
    assert (await third.answer()).startswith(b"HTTP/1.1 200 ")
    assert setup.server.body_budget.reserved_bytes == 0


async def test_who_waits_for_room_when_the_server_ends_is_told_to_go_elsewhere(setup, largest):
    first, second, late = [await setup.connect() for _ in range(3)]
    first.writer.write(large("/a", largest) + bytes(largest))
    held = await setup.hands.next()
    second.writer.write(large("/echo", largest))
    await until(lambda: setup.server.body_budget.waiting == 1)
    ending = asyncio.ensure_future(setup.server.drain())
    assert b"x-sagehen-not-started: 1" in await second.answer()
    assert b"x-sagehen-not-started: 1" in await late.ask(large("/echo", largest))
    held.respond(ModelAnswer(200))
    assert (await first.answer()).startswith(b"HTTP/1.1 200 ")
    await ending
