"""How long a wait is, and how long work is tried again."""

import pytest

from sagehen.base.errors import NotFound, Unavailable
from sagehen.base.retry import Backoff, RetryPolicy, backoff_seconds
from support.clock import HandClock


def test_waits_double_to_a_bound() -> None:
    waits = [backoff_seconds(attempts, first=1, longest=60) for attempts in range(8)]

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_no_number_of_attempts_is_too_many() -> None:
    assert backoff_seconds(10**6) == 60


def test_a_backoff_grows_with_each_failure_and_begins_again_after_a_success() -> None:
    backoff = Backoff(first=0.5, longest=4)

    assert [backoff.next_seconds() for _ in range(5)] == [0.5, 1, 2, 4, 4]
    backoff.reset()
    assert [backoff.next_seconds() for _ in range(2)] == [0.5, 1]


def test_a_backoff_may_grow_slowly() -> None:
    backoff = Backoff(first=1, longest=10, factor=1.5)

    assert [backoff.next_seconds() for _ in range(3)] == [1, 1.5, 2.25]


class Work:
    """Fails with `errors`, one at a time, before it returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_work_is_tried_again_with_growing_waits() -> None:
    clock = HandClock()
    retry = RetryPolicy(clock, seconds=60)

    assert await retry(Work(Unavailable("away"), OSError("away"), Unavailable("away"))) == "done"
    assert clock.seconds == pytest.approx(0.1 + 0.2 + 0.4)


async def test_the_last_error_is_raised_after_too_long() -> None:
    clock = HandClock()
    errors = [Unavailable(str(number)) for number in range(10)]

    with pytest.raises(Unavailable, match="3"):
        await RetryPolicy(clock, seconds=1)(Work(*errors))
    assert clock.seconds == pytest.approx(0.1 + 0.2 + 0.4)


async def test_a_limit_ends_all_retries_sooner() -> None:
    retry = RetryPolicy(HandClock(), seconds=60)
    retry.limit(0.2)

    with pytest.raises(Unavailable, match="second"):
        await retry(Work(Unavailable("first"), Unavailable("second")))


async def test_an_error_that_no_retry_cures_is_raised_at_once() -> None:
    clock = HandClock()

    with pytest.raises(NotFound):
        await RetryPolicy(clock, seconds=60)(Work(NotFound("gone")))
    assert clock.seconds == 0
