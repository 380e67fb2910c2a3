"""How many deliveries run at once, and how many start in a second."""

from sagehen.services.messaging.outbox.limits import ConcurrencyLimits, RateLimits


def test_free_slots_of_each_receiver_and_in_all() -> None:
    limits = ConcurrencyLimits(total=5, per_receiver=4)
    for address in ("x", "x", "x", "y"):
        limits.begin("a", address)
    assert (limits.free("a", "z"), limits.free("b", "z")) == (0, 1)
    limits.begin("b", "z")
    assert limits.is_full
    limits.end("b", "z")
    limits.end("a", "y")
    assert limits.free("a", "x") == 0, "one address never has all slots of its receiver"
    assert (limits.free("a", "y"), limits.free("b", "z")) == (1, 2)


def test_a_rate_limit_saves_at_most_a_second_s_deliveries() -> None:
    rates = RateLimits()
    assert rates.allowed("s", None, now=0) is None
    assert rates.allowed("s", 5, now=0) == 5
    for _ in range(5):
        rates.use("s", 5, now=0)
    assert rates.allowed("s", 5, now=0) == 0
    assert rates.allowed("s", 5, now=0.4) == 2
    assert rates.allowed("s", 5, now=100) == 5
    rates.forget_all_but(set())
    assert rates.allowed("s", 5, now=0) == 5
