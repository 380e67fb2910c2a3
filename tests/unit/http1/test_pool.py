"""The connections to one address."""

import asyncio
import time
from typing import Any

import pytest

from sagehen.http1.pool import Pool


class Waiting:
    """Who asked for a connection."""

    def __init__(self) -> None:
        self.upstream: Any = None
        self.was_refused = False

    def connected(self, upstream) -> None:
        self.upstream = upstream

    def refused(self) -> None:
        self.was_refused = True

    def answer_ends(self) -> None: ...


async def test_a_connection_that_has_just_ended_is_given_to_nobody(house, echo, eventually):
    """Its loss is told in the loop's next turn; what was sent on it would be lost with it."""
    fake = await house.fake(echo)
    pool = Pool(fake.address, house.clock)
    first, second = Waiting(), Waiting()
    assert pool.take(first) is None
    await eventually(lambda: first.upstream)
    pool._freed(first.upstream)
    first.upstream.transport.close()
    assert pool.take(second) is None
    await eventually(lambda: second.upstream)
    assert second.upstream is not first.upstream
    pool._freed(second.upstream)
    assert pool.take(first) is second.upstream
    pool.abort()


async def test_who_had_no_processor_while_it_connected_is_connected(
    house, echo, eventually, monkeypatch
):
    fake = await house.fake(echo)
    pool, waiting = Pool(fake.address, house.clock), Waiting()
    monkeypatch.setattr("sagehen.http1.pool.CONNECT_TIMEOUT_SECONDS", 0.001)
    pool.take(waiting)
    await asyncio.sleep(0)
    # The process stands still; then its loop finds the time-out and the connection.
    time.sleep(0.01)  # noqa: ASYNC251
    await eventually(lambda: waiting.upstream or waiting.was_refused)
    assert not waiting.was_refused
    pool.abort()


@pytest.mark.parametrize("address", ["tcp:127.0.0.1:no-port", "tcp:127.0.0.1:99999999", "unix:\0"])
async def test_who_waits_for_an_address_that_makes_no_sense_is_told(house, eventually, address):
    pool = Pool(address, house.clock)
    waiting = [Waiting(), Waiting()]
    assert [pool.take(one) for one in waiting] == [None, None]
    await eventually(lambda: all(one.was_refused for one in waiting))


async def test_after_a_broken_answer_no_idle_connection_is_used(house, variant, eventually, echo):
    """A process that dies does not end all of its connections in one moment."""
    arrived = asyncio.Barrier(3)

    async def one_that_dies(asked):
        if asked.body == b"die":
            dying.stop_listening()
            return None
        if len(dying.asked) <= 3:
            await arrived.wait()
        return 200, {}, b"from the dead"

    dying = await house.fake(one_that_dies)
    house.route(variant(dying))
    await house.start()
    before = await asyncio.gather(*(house.invoke() for _ in range(3)))
    assert [got.body for got in before] == [b"from the dead"] * 3
    other = await house.fake(echo)
    house.route(variant(dying, other))
    while (await house.invoke(b"die")).status != 424:
        pass
    after = [await house.invoke(b"alive") for _ in range(10)]
    assert [(got.status, got.body) for got in after] == [(200, b"alive")] * 10
    assert len(dying.asked) == 4
