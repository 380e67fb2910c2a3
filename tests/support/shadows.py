"""What tests of shadow variants say often."""

import asyncio

STREAM = "/endpoints/price/invocations-response-stream"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TARGET = "X_Amzn_SageMaker_Target_Variant"


async def never(asked):
    await asyncio.Event().wait()


class Held:
    """Answers when it is let."""

    def __init__(self):
        self.free = asyncio.Event()

    async def answer(self, asked):
        await self.free.wait()
        return 200, {}, b"theirs"


async def ours(house, body=b"1,2", **signed):
    """An invocation that production answers as if there were no shadow."""
    got = await asyncio.wait_for(house.invoke(body, **signed), 60)
    assert (got.status, got.body) == (200, b"ours")
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    return got
