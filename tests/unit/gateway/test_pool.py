"""The connections to one address."""

import pytest

from sagehen.gateway.pool import Pool


class Waiting:
    """Who asked for a connection."""

    def __init__(self) -> None:
        self.upstream = None
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


@pytest.mark.parametrize("address", ["tcp:127.0.0.1:no-port", "tcp:127.0.0.1:99999999", "unix:\0"])
async def test_who_waits_for_an_address_that_makes_no_sense_is_told(house, eventually, address):
    pool = Pool(address, house.clock)
    waiting = [Waiting(), Waiting()]
    assert [pool.take(one) for one in waiting] == [None, None]
    await eventually(lambda: all(one.was_refused for one in waiting))
