"""What a container may send, and how much of it."""

import pytest

from sagehen.gateway.upstream import MAX_HEAD_BYTES

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def answered(house, variant):
    """`await answered(*pieces)`: what becomes of an answer of these pieces."""

    async def answer(*pieces):
        async def container(head, reader, writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            await reader.read()

        house.route(variant(await house.raw(container, house.home.run / "c.sock")))
        await house.start()
        return await house.invoke()

    return answer


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 1000),
        (HEAD + b"1\r\nx\r\n0\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
        (HEAD + b"1\r\nx\r\n0\r\nX-A: ", b"a" * 1000),
        (HEAD + b"1;", b"a" * 1000),
    ],
    ids=["head", "line", "trailers", "trailer", "extension"],
)
async def test_what_is_no_body_has_a_bound(answered, endless):
    begun, more = endless
    times = 4 * MAX_HEAD_BYTES // len(more)
    got = await answered(begun, *[more] * times)
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")


async def test_a_body_has_none_however_it_is_cut(answered):
    body = b"".join(b"1\r\n%b\r\n" % (b"x") for _ in range(200_000)) + b"0\r\nX-A: b\r\n\r\n"
    got = await answered(HEAD, *[body[at : at + 7919] for at in range(0, len(body), 7919)])
    assert (got.status, got.body) == (200, b"x" * 200_000)


async def test_trailers_are_no_headers(answered):
    trailers = b"Content-Type: text/html\r\nX-Amzn-SageMaker-Custom-Attributes: a\r\n\r\n"
    got = await answered(HEAD + b"1\r\nx\r\n0\r\n" + trailers)
    assert (got.status, got.body) == (200, b"x")
    assert not {"content-type", "x-amzn-sagemaker-custom-attributes"} & set(got.headers)
