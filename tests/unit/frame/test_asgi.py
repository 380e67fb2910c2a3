"""What the bodies of requests may take of memory, one and all of them together."""

import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.asgi import (
    BodyBudget,
    BodyTooLarge,
    ClientGone,
    stream_body,
    whole_response,
)
from sagehen.wire.http import Response


def coming(*pieces, ends=True):
    """A receive that gives `pieces`, and then that the client has gone unless it `ends`."""
    messages = [{"type": "http.request", "body": one, "more_body": True} for one in pieces]
    messages.append({"type": "http.request"} if ends else {"type": "http.disconnect"})

    async def receive():
        return messages.pop(0)

    return receive


async def test_a_body_is_whole_and_counts_while_it_is_used():
    budget = BodyBudget(10)
    async with budget.read(coming(b"abc", b"", b"de"), 5) as body:
        assert body == b"abcde"
        assert budget.held_bytes == 5
    assert budget.held_bytes == 0


async def test_a_body_that_is_streamed_comes_piece_by_piece():
    assert [piece async for piece in stream_body(coming(b"abc", b"", b"de"))] == [b"abc", b"de"]
    stream = stream_body(coming(b"abc", ends=False))
    assert await anext(stream) == b"abc"
    with pytest.raises(ClientGone):
        await anext(stream)


async def test_all_together_have_a_bound():
    budget = BodyBudget(10)
    async with budget.read(coming(b"123456"), 9):
        with pytest.raises(Unavailable, match="max_held_control_body_bytes"):
            async with budget.read(coming(b"12", b"345"), 9):
                raise AssertionError
        assert (budget.held_bytes, budget.hits) == (6, 1)
        async with budget.read(coming(b"1234"), 9):
            assert budget.held_bytes == 10
    assert budget.held_bytes == 0


@pytest.mark.parametrize(
    ("receive", "error"),
    [(coming(b"123", b"456"), BodyTooLarge), (coming(b"123", ends=False), ClientGone)],
)
async def test_nothing_stays_of_what_is_not_taken(receive, error):
    budget = BodyBudget(10)
    with pytest.raises(error):
        async with budget.read(receive, 5):
            raise AssertionError
    assert budget.held_bytes == 0


async def test_nothing_stays_of_what_fails_later():
    budget = BodyBudget(10)
    with pytest.raises(ZeroDivisionError):
        async with budget.read(coming(b"123"), 5):
            raise ZeroDivisionError
    assert budget.held_bytes == 0


async def test_a_part_leaves_room_for_the_others():
    budget = BodyBudget(10)
    part = budget.part(4, "Too much of it.")
    async with part.read(coming(b"123"), 9):
        assert (part.held_bytes, budget.held_bytes) == (3, 3)
        with pytest.raises(Unavailable, match="Too much of it"):
            async with part.read(coming(b"12"), 9):
                raise AssertionError
        assert budget.hits == 1
        async with budget.read(coming(b"1234567"), 9):
            with pytest.raises(Unavailable, match="max_held_control_body_bytes"):
                async with part.read(coming(b"1"), 9):
                    raise AssertionError
    assert (part.held_bytes, budget.held_bytes, budget.hits) == (0, 0, 2)


@pytest.mark.parametrize(
    ("method", "headers", "body", "sent"),
    [
        ("GET", {"Content-Type": "text/csv"}, b"abc", [(b"content-length", b"3")]),
        ("HEAD", {}, b"abc", [(b"content-length", b"3")]),
        ("HEAD", {"Content-Length": "9"}, b"", [(b"content-length", b"9")]),
        ("POST", {}, b"", [(b"content-length", b"0")]),
    ],
)
async def test_a_whole_response_has_its_length(method, headers, body, sent):
    messages = []

    async def send(message):
        messages.append(message)

    response = whole_response(Response(204, headers, body), method)
    await response({"type": "http"}, coming(), send)
    start, end = messages
    assert start["status"] == 204
    assert [field for field in start["headers"] if field[0] == b"content-length"] == sent
    assert all(name == name.lower() for name, _ in start["headers"])
    assert end["body"] == (b"" if method == "HEAD" else body)
