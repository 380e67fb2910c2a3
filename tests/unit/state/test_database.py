"""Turns: in the order of their coming, and not without end."""

import threading

import pytest

from sagehen.base.errors import Unavailable
from sagehen.state.database import FairLock


def test_who_waited_longest_is_next() -> None:
    turns = FairLock(120)
    got: list[int] = []

    def take(number: int) -> None:
        with turns.turn():
            got.append(number)

    with turns.turn():
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                pass
    # Who comes now is behind all of them.
    take(5)
    for thread in threads:
        thread.join()
    assert got == [0, 1, 2, 3, 4, 5]


def test_who_waits_too_long_gives_up_and_harms_nobody() -> None:
    turns = FairLock(0.01)
    with turns.turn(), pytest.raises(Unavailable, match="busy"), turns.turn():
        pass
    with turns.turn():
        pass


def test_a_turn_ends_with_what_it_raises() -> None:
    turns = FairLock(0.01)
    with pytest.raises(KeyError), turns.turn():
        raise KeyError
    with turns.turn():
        pass
