"""The connections to one address."""

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
