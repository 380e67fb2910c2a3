"""`sagehen transform watch`: looks at a job until it has ended."""

import pytest

from sagehen.app.commands.transforms import LONGEST_AWAY_SECONDS, looks
from sagehen.base.errors import Unavailable

RUNS, ENDED = {"status": "InProgress"}, {"status": "Completed"}
AWAY = Unavailable("The server does not answer.")


class Clock:
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def look_at(*answers):
    """A look that gives these answers, the last one over and over."""
    left = list(answers)

    def look():
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def test_it_ends_with_the_job() -> None:
    assert list(looks(look_at(RUNS, ENDED), 1.0, Clock())) == [RUNS, ENDED]


def test_a_server_that_is_started_again_is_waited_for() -> None:
    assert list(looks(look_at(RUNS, AWAY, AWAY, ENDED), 1.0, Clock())) == [RUNS, ENDED]


def test_a_server_that_stays_away_is_an_error() -> None:
    clock = Clock()
    with pytest.raises(Unavailable):
        list(looks(look_at(RUNS, AWAY), 1.0, clock))
    assert LONGEST_AWAY_SECONDS <= clock.seconds <= LONGEST_AWAY_SECONDS + 2


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    clock = Clock()
    with pytest.raises(Unavailable):
        list(looks(look_at(AWAY), 1.0, clock))
    assert clock.seconds == 0
