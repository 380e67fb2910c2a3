"""Whatever containers, clients and tables do: at the end nothing is held for anybody."""

import asyncio
import random

import msgspec
import pytest

NOT_STARTED = b"HTTP/1.1 503 X\r\nx-sagehen-not-started: 1\r\nContent-Length: 0\r\n\r\n"
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + bytes(400_000),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"61a80\r\n%b\r\n0\r\n\r\n" % bytes(400_000),
    b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + bytes(300_000),
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\nbad",
    b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Le",
    b"rubbish\r\n\r\n",
    b"",
    NOT_STARTED,
]
OF_TABLES = {"Pool", "RoutedInstance", "SlotQueue", "Variant", "VariantRoute"}
"""What a table that is replaced leaves to the collector: few, and seldom."""
PATHS = ["/endpoints/price/invocations", "/endpoints/price/invocations-response-stream"]


class Moody:
    """A container of which nobody knows what it does next."""

    def __init__(self, rng):
        self.rng = rng

    async def handle(self, head, reader, writer):
        mood = self.rng.random()
        if mood < 0.1:
            return  # with something left unread, where there was a body
        if mood < 0.2:
            await reader.read()  # until the other side has had enough
            return
        _, _, length = head.partition(b"Content-Length: ")
        await reader.readexactly(int(length.partition(b"\r\n")[0]))
        writer.write(self.rng.choice(ANSWERS))
        await writer.drain()


async def moody_client(house, rng):
    client = await house.connect()
    for _ in range(rng.randint(1, 3)):
        sent = house.signed(bytes(rng.choice([0, 3, 300_000])), path=rng.choice(PATHS))
        client.send(sent if rng.random() < 0.9 else sent[: -rng.randint(1, 2)])
    for _ in range(rng.randint(0, 20)):
        await asyncio.sleep(0.001)
    if rng.random() < 0.5:
        client.writer.transport.abort()
        return
    try:
        async with asyncio.timeout(rng.choice([0.02, 0.2])):
            await client.reader.read(rng.choice([1, 10**7]))
            await client.reader.read()
    except (TimeoutError, ConnectionError):
        pass
    client.close()


def left(house):
    gateway = house.gateway
    context, shadows = gateway._context, gateway._context.shadows
    counters = gateway._counters._variants.values()
    return {
        "slots": house.outstanding(),
        "in-flight table": sum(map(gateway._routes._inflight.outstanding, range(8))),
        "bodies": context.body_memory.bytes,
        "active": len(context.active),
        "in flight": sum(one.in_flight.now for one in counters),
        "queued": sum(one.queued.now for one in counters) + gateway._routes.queued,
        "copies": len(shadows._all.copies) + shadows._all.size + len(shadows._by_shadow),
        "waiting": sum(len(one.upstreams._waiting) for one in gateway._routes.instances()),
        "clients": len(gateway._server.connections),
    }


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_left(house, variant, eventually, caplog, kept, seed):
    rng = random.Random(seed)
    places = [
        await house.raw(Moody(rng).handle, house.home.run / f"moody{number}.sock")
        for number in range(3)
    ]
    places.append(f"unix:{house.home.run}/nobody.sock")

    def some_variant(places, first_column, **more):
        made = variant(*places, slots=rng.choice([1, 3]), **more)
        instances = tuple(
            msgspec.structs.replace(one, inflight_column=first_column + number)
            for number, one in enumerate(made.instances)
        )
        return msgspec.structs.replace(made, instances=instances)

    def some_table():
        some = rng.sample(places, rng.randint(1, 4))
        shadow = some_variant(some[:1], 4, name="Shadow") if rng.random() < 0.7 else None
        house.route(some_variant(some, 0), shadow=shadow)

    some_table()
    await house.start(max_queued_invocations=20, max_held_body_bytes=3_000_000)
    for _ in range(12):
        await asyncio.gather(*(moody_client(house, rng) for _ in range(8)))
        house.clock.advance(rng.choice([0, 1, 30, 70]))
        some_table()

    def nothing():
        house.clock.advance(1)  # so that all that goes on for ever is ended in its time
        return not any(left(house).values())

    await eventually(nothing)
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
    assert kept().keys() <= OF_TABLES
