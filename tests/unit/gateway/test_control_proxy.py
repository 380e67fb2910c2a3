"""What becomes of a request whose connection to control ends."""

from types import SimpleNamespace

import pytest

from sagehen.gateway.control_proxy import MAX_REPEATED_BYTES, ControlProxy


class Upstream:
    def __init__(self) -> None:
        self.sent = b""
        self.not_begun = False

    def begin(self, receiver, bodiless) -> None: ...

    def write(self, data) -> None:
        self.sent += data

    def write_all(self, parts) -> None:
        self.sent += b"".join(parts)


class Pool:
    """Hands out new connections."""

    has_connected = True

    def __init__(self) -> None:
        self.made: list[Upstream] = []

    def take(self, waiter):
        self.made.append(Upstream())
        return self.made[-1]


class Exchange(SimpleNamespace):
    def answer(self, status, fields, body) -> None:
        self.answered.append(status)


@pytest.fixture
def exchange():
    channel = SimpleNamespace(hold=lambda: None, release=lambda: None, abort=lambda: None)
    return Exchange(
        headers=[(b"Content-Length", b"3")],
        method=b"PUT",
        target=b"/",
        legacy=False,
        is_whole=False,
        begun=False,
        request_id=b"id",
        channel=channel,
        answered=[],
    )


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def proxy(exchange, pool):
    proxy = ControlProxy(exchange, pool)
    proxy.begin()
    return proxy


def lose(pool, proxy, not_begun=True) -> None:
    pool.made[-1].not_begun = not_begun
    proxy.answer_breaks()


def test_what_control_has_not_read_goes_to_it_on_another_connection(pool, proxy, exchange):
    """Control closed an idle connection in just that moment."""
    proxy.body(b"a")
    proxy.body(b"bc")
    lose(pool, proxy)
    first, second = (each.sent for each in pool.made)
    assert second == first
    assert second.endswith(b"\r\n\r\nabc")
    assert exchange.answered == []
    # Once: a control that always does so is none.
    lose(pool, proxy)
    assert len(pool.made) == 2
    assert exchange.answered == [503]


def test_a_body_that_comes_meanwhile_follows(pool, exchange):
    exchange.headers = [(b"Transfer-Encoding", b"chunked")]
    proxy = ControlProxy(exchange, pool)
    proxy.begin()
    proxy.body(b"abc")
    lose(pool, proxy)
    proxy.body(b"de")
    proxy.whole()
    assert pool.made[1].sent.endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_what_control_may_have_begun_is_not_repeated(pool, proxy, exchange):
    lose(pool, proxy, not_begun=False)
    assert len(pool.made) == 1
    assert exchange.answered == [503]


def test_a_large_body_is_not_kept(pool, proxy, exchange):
    proxy.body(b"x" * MAX_REPEATED_BYTES)
    proxy.body(b"x")
    lose(pool, proxy)
    assert len(pool.made) == 1
    assert exchange.answered == [503]
