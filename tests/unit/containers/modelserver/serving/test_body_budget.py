"""Memory for large bodies: first come, first served, within a bound."""

import pytest

from sagehen.containers.modelserver.serving.body_budget import Reservation, ServingBodyBudget


class Bodies:
    """Bodies by name; `granted` has the names of those that waited, in order."""

    def __init__(self, bound: int) -> None:
        self.budget = ServingBodyBudget(bound)
        self.granted: list[str] = []

    def enter(self, name: str, size: int) -> Reservation:
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
