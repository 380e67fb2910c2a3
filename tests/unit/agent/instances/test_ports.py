import socket

import pytest

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances import container_plan as ports
from sagehen.agent.instances.container_plan import PortRange, Ports


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    """Room for four ranges, away from those that servers use."""
    monkeypatch.setattr(ports, "FIRST", 11_000)
    monkeypatch.setattr(ports, "LAST", 11_039)
    monkeypatch.setattr(ports, "PER_CONTAINER", 10)


def test_nobody_gets_what_is_somebodys() -> None:
    one, other = Ports(), Ports()
    taken = [one.take(), other.take(), one.take()]
    with socket.socket() as listening:
        free = ({11_000, 11_010, 11_020, 11_030} - {each.first for each in taken}).pop()
        listening.bind(("127.0.0.1", free + 5))
        with pytest.raises(CannotStart, match="no 10 ports in a row are free"):
            other.take()
    taken.append(other.take())
    assert len(set(taken)) == 4
    for each in taken:
        one.release(each)
        other.release(each)


def test_what_was_given_back_is_used_again_last() -> None:
    pool = Ports()
    first = pool.take()
    pool.release(first)
    later = [pool.take() for _ in range(4)]
    assert later[-1] == first
    for each in later:
        pool.release(each)


def test_the_first_and_the_last_are_not_spare() -> None:
    assert PortRange(12_000, 12_049).spare == "12001-12048"
