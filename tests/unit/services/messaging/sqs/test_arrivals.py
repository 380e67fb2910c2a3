"""Who waits for messages is woken, one after the other, and nobody's news is lost."""

import asyncio

import pytest

from sagehen.base.errors import LimitExceeded
from sagehen.services.messaging.sqs.arrivals import Arrivals


async def test_one_is_woken_who_has_waited_longest() -> None:
    arrivals = Arrivals(10)
    with arrivals.waiting("q") as first, arrivals.waiting("q") as second:
        arrivals.wake_one("q")
        assert (first.is_set(), second.is_set()) == (True, False)
        arrivals.wake_one("q")
        assert second.is_set()
        arrivals.wake_one("other")


async def test_who_goes_without_looking_wakes_the_next() -> None:
    arrivals = Arrivals(10)
    with arrivals.waiting("q") as patient:
        with arrivals.waiting("q"):
            pass
        assert not patient.is_set()
        with arrivals.waiting("other") as other:
            other.set()
        assert not patient.is_set()
    with arrivals.waiting("q") as first, arrivals.waiting("q") as second:
        arrivals.wake_one("q")
        first.clear()  # It has looked.
        arrivals.wake_one("q")
        assert first.is_set()
        assert not second.is_set()


async def test_a_waiter_that_is_woken_as_it_goes() -> None:
    arrivals = Arrivals(10)
    gone = arrivals.waiting("q")
    gone.__enter__()
    with arrivals.waiting("q") as next_one:
        arrivals.wake_one("q")
        gone.__exit__(None, None, None)
        assert next_one.is_set()


async def test_news_come_from_any_thread() -> None:
    arrivals = Arrivals(10)
    arrivals.tell("q")  # Nobody waits yet.
    with arrivals.waiting("q") as event:
        assert not event.is_set()
        await asyncio.to_thread(arrivals.tell, "q")
        assert await asyncio.wait_for(event.wait(), 60)


async def test_so_many_may_wait() -> None:
    arrivals = Arrivals(1)
    with arrivals.waiting("q"), pytest.raises(LimitExceeded), arrivals.waiting("r"):
        pass
    with arrivals.waiting("r"):
        pass


async def test_closing_wakes_everybody() -> None:
    arrivals = Arrivals(10)
    with arrivals.waiting("q") as first, arrivals.waiting("r") as second:
        arrivals.close()
        assert first.is_set()
        assert second.is_set()
        assert arrivals.closed
