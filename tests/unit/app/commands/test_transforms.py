"""`sagehen transform watch`: looks at a job until it has ended."""

import pytest

from sagehen.app.commands.transforms import LONGEST_AWAY_SECONDS, _advising, _counts, looks
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


PROGRESS = {
    "status": "InProgress",
    "objects": 0,
    "objects_known": 1,
    "is_listed": True,
    "records": 3120,
    "failed_objects": 0,
    "failed_records": 0,
    "records_per_second": 220.4,
    "seconds_left": 200.0,
    "batch_strategy": "SingleRecord",
}


def test_the_time_left_is_told_while_one_object_is_transformed() -> None:
    assert _counts(PROGRESS) == ("0 of 1 objects, 3,120 records, 220 records/s, about 0:03:20 left")


@pytest.mark.parametrize(
    ("changes", "times"), [({}, 1), ({"records": 10}, 0), ({"batch_strategy": "MultiRecord"}, 0)]
)
def test_a_request_for_each_of_many_records_is_advised_against_once(
    changes: dict[str, object], times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    looked = PROGRESS | changes
    assert list(_advising([looked, looked])) == [looked, looked]
    assert capsys.readouterr().out.count("BatchStrategy=MultiRecord") == times
