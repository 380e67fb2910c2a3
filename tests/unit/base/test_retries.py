"""How long a wait is."""

from sagehen.base.retry import backoff_seconds


def test_waits_double_to_a_bound() -> None:
    waits = [backoff_seconds(attempts, first=1, longest=60) for attempts in range(8)]

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_no_number_of_attempts_is_too_many() -> None:
    assert backoff_seconds(10**6) == 60
