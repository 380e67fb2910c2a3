"""Copies of requests for a shadow variant, and that production knows nothing of them."""

import asyncio

import pytest

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


@pytest.fixture
async def production(house):
    """A container that answers at once."""
    return await house.fake(lambda asked: (200, {"Content-Type": "text/csv"}, b"ours"))


@pytest.fixture
def shadowed(house, variant, production):
    """`await shadowed(*places, weight=…, slots=…)`: a started house with a shadow there."""

    async def start(*places, settings=None, **shadow):
        house.route(variant(production), shadow=variant(*places, name="Next", **shadow))
        return await house.start(**(settings or {}))

    return start


@pytest.fixture
def counts(house):
    """`counts()`: what is counted of the shadow."""
    return lambda: house.gateway._counters.of("price", "Next")


@pytest.fixture
def is_idle(house, counts):
    """`is_idle()`: no copy is under way any more, and nothing is held for one."""

    def idle():
        shadows = house.gateway._shadows
        if shadows._all.copies:
            return False
        assert (shadows._all.size, shadows._by_shadow) == (0, {})
        return not house.outstanding()

    return idle


async def ours(house, body=b"1,2", **signed):
    """An invocation that production answers as if there were no shadow."""
    got = await asyncio.wait_for(house.invoke(body, **signed), 10)
    assert (got.status, got.body) == (200, b"ours")
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    return got


async def test_a_copy_has_the_body_and_the_headers(house, shadowed, production, eventually, echo):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    await ours(
        house,
        b"1,2" * 100_000,
        Content_Type="text/csv",
        Accept="text/plain",
        X_Amzn_SageMaker_Custom_Attributes="theirs",
        X_Other="not this",
    )
    await eventually(lambda: next_one.asked)
    (copy,), (request,) = next_one.asked, production.asked
    assert copy == request
    assert copy.body == b"1,2" * 100_000
    assert "x-other" not in copy.fields


async def test_without_a_body_there_is_a_copy_too(house, shadowed, eventually, echo):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    await ours(house, b"")
    await eventually(lambda: next_one.asked)
    assert next_one.asked[0].body == b""


async def test_a_stream_is_copied_and_read_to_its_end(
    house, shadowed, eventually, counts, is_idle, production
):
    parts = b"".join(b"10000\r\n" + bytes(65536) + b"\r\n" for _ in range(8)) + b"0\r\n\r\n"
    next_one = await house.fake(lambda asked: STREAM_HEAD + parts)
    await shadowed(next_one)
    headers = {"Accept": "application/x-of-the-sdk", "X_Amzn_SageMaker_Accept": "text/plain"}
    for _ in range(2):
        got = await house.invoke(path=STREAM, **headers)
        assert (got.status, b"ours" in got.body) == (200, True)
        await eventually(is_idle)
    assert len(next_one.asked) == 2
    assert next_one.asked[0] == production.asked[0]
    assert next_one.asked[0].fields["accept"] == "text/plain"
    assert next_one.connections == 1
    assert (counts().invocations, counts().model_errors) == (2, 0)


@pytest.mark.parametrize(
    ("weight", "fewest", "most"), [(0, 0, 0), (0.25, 45, 75), (1, 240, 240), (7, 240, 240)]
)
async def test_the_share_is_the_weight(
    house, shadowed, eventually, echo, is_idle, weight, fewest, most
):
    next_one = await house.fake(echo)
    await shadowed(next_one, weight=weight)
    for _ in range(240):
        await ours(house)
    await eventually(is_idle)
    assert fewest <= len(next_one.asked) <= most


@pytest.mark.parametrize(
    ("answering", "errors"),
    [
        (lambda asked: (200, {}, b"theirs"), (0, 0)),
        (lambda asked: (201, {}, bytes(3_000_000)), (0, 0)),
        (lambda asked: (400, {}, b"bad"), (3, 0)),
        (lambda asked: (500, {}, b"bad"), (0, 3)),
        (lambda asked: None, (0, 3)),
        (lambda asked: b"rubbish\r\n\r\n", (0, 3)),
        (lambda asked: (503, {"x-sagehen-not-started": "1", "connection": "close"}, b""), (0, 3)),
    ],
    ids=["well", "much", "400", "500", "hangs up", "rubbish", "never starts"],
)
async def test_whatever_a_shadow_answers_is_counted_and_no_more(
    house, shadowed, eventually, counts, is_idle, answering, errors
):
    await shadowed(await house.fake(answering))
    for _ in range(3):
        await ours(house)
    await eventually(is_idle)
    told = counts()
    assert (told.errors_4xx, told.errors_5xx) == errors
    assert told.model_errors == sum(errors)
    assert (told.invocations, told.shadow_copies_dropped) == (3, 0)
    assert told.in_flight.now == 0


@pytest.mark.parametrize("places", [(), ("unix:/nowhere",), ("tcp:127.0.0.1:1", "unix:/nowhere")])
async def test_a_shadow_that_is_away_gets_nothing(
    house, shadowed, eventually, counts, is_idle, places
):
    await shadowed(*places)
    for _ in range(3):
        await ours(house)
    await eventually(is_idle)
    assert (counts().invocations, counts().shadow_copies_dropped) == (0, 3)


async def test_a_shadow_that_hangs_is_given_up_after_a_while(
    house, shadowed, eventually, counts, is_idle
):
    next_one = await house.fake(never)
    await shadowed(next_one)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 3)
    assert counts().in_flight.now == 3
    house.clock.advance(60)
    await eventually(is_idle)
    await eventually(lambda: next_one.lost == 3)
    told = counts()
    assert (told.invocations, told.errors_5xx, told.shadow_copies_dropped) == (3, 3, 0)
    assert told.in_flight.now == 0


async def test_a_shadow_that_does_not_read_holds_nobody_up(
    house, shadowed, eventually, counts, is_idle
):
    connected = asyncio.Event()

    async def deaf(head, reader, writer):
        reader._transport.pause_reading()
        connected.set()
        await asyncio.Event().wait()

    await shadowed(await house.raw(deaf, house.home.run / "deaf.sock"))
    await ours(house, bytes(8_000_000))
    await ours(house)
    async with asyncio.timeout(10):
        await connected.wait()
    house.clock.advance(60)
    await eventually(is_idle)
    assert counts().errors_5xx == 2


async def test_a_stream_that_has_begun_has_the_time_of_a_stream(
    house, shadowed, eventually, counts, is_idle
):
    speaking = asyncio.Event()

    async def slow(head, reader, writer):
        writer.write(STREAM_HEAD + b"1\r\na\r\n")
        speaking.set()
        await reader.read()

    def has_begun():
        (copy,) = house.gateway._shadows._all.copies
        return copy.deadline > house.clock.monotonic() + 60

    await shadowed(await house.raw(slow, house.home.run / "slow.sock"))
    await house.invoke(path=STREAM)
    await eventually(lambda: speaking.is_set() and has_begun())
    house.clock.advance(479)
    house.gateway._shadows.expire()
    assert not is_idle()
    house.clock.advance(1)
    await eventually(is_idle)
    assert counts().errors_5xx == 1


async def test_only_a_stream_has_the_time_of_a_stream(house, shadowed, eventually, counts, is_idle):
    async def slow(head, reader, writer):
        writer.write(STREAM_HEAD + b"1\r\na\r\n")
        await reader.read()

    await shadowed(await house.raw(slow, house.home.run / "slow.sock"))
    await ours(house)
    await eventually(lambda: counts().invocations)
    house.clock.advance(60)
    await eventually(is_idle)
    assert counts().errors_5xx == 1


async def test_more_copies_than_are_held_are_dropped(
    house, shadowed, eventually, counts, is_idle, limits_met
):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, settings={"max_shadow_copies": 2})
    for _ in range(5):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 2)
    assert (counts().invocations, counts().shadow_copies_dropped) == (2, 3)
    held.free.set()
    await eventually(is_idle)
    await ours(house)
    await eventually(lambda: len(next_one.asked) == 3)
    assert limits_met() == {"shadow_copies": 3}


async def test_more_data_than_is_held_is_dropped(
    house, shadowed, eventually, counts, is_idle, limits_met
):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, settings={"max_shadow_body_bytes": 400})
    for size in (60, 50, 40):
        await ours(house, bytes(size))
    await eventually(lambda: len(next_one.asked) == 2)
    assert [len(one.body) for one in next_one.asked] == [60, 40]
    assert counts().shadow_copies_dropped == 1
    held.free.set()
    await eventually(is_idle)
    await ours(house, bytes(100))
    await eventually(lambda: len(next_one.asked) == 3)
    assert limits_met() == {"shadow_copies": 1}


async def test_a_shadow_that_hangs_takes_no_room_from_another(
    house, shadowed, variant, production, eventually, counts, echo
):
    other = await house.fake(echo)
    await shadowed(await house.fake(never), settings={"max_shadow_copies": 2})
    for _ in range(3):
        await ours(house)
    assert counts().shadow_copies_dropped == 1
    house.route(variant(production), endpoint="other", shadow=variant(other, name="Other"))
    house.gateway._routes.refresh()
    await ours(house, path="/endpoints/other/invocations")
    await eventually(lambda: other.asked)


async def test_all_shadows_together_have_a_bound(house, shadowed, eventually, counts):
    next_one = await house.fake(never)
    await shadowed(next_one, settings={"max_connections": 2})
    for _ in range(3):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 2)
    assert counts().shadow_copies_dropped == 1


async def test_copies_take_no_room_from_requests(house, shadowed, eventually, limits_met):
    next_one = await house.fake(never)
    await shadowed(next_one, settings={"max_queued_invocations": 1})
    for _ in range(4):
        await ours(house)
    await eventually(lambda: len(next_one.asked) == 4)
    assert len(house.gateway._shadows._all.copies) == 4
    assert limits_met() == {}


async def test_a_copy_waits_for_a_slot(house, shadowed, eventually, counts, is_idle):
    held = Held()
    next_one = await house.fake(held.answer)
    await shadowed(next_one, slots=1)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: house.gateway._routes.queued == 2)
    assert (len(next_one.asked), counts().invocations) == (1, 1)
    held.free.set()
    await eventually(is_idle)
    assert (len(next_one.asked), counts().invocations) == (3, 3)
    assert counts().shadow_copies_dropped == 0


async def test_a_copy_that_waits_in_vain_is_dropped(house, shadowed, eventually, counts, is_idle):
    await shadowed(await house.fake(never), slots=1)
    for _ in range(3):
        await ours(house)
    await eventually(lambda: house.gateway._routes.queued == 2)
    house.clock.advance(60)
    await eventually(is_idle)
    told = counts()
    assert (told.invocations, told.errors_5xx, told.shadow_copies_dropped) == (1, 1, 2)
    assert house.gateway._routes.queued == 0


async def test_an_instance_that_is_away_or_ending_is_passed_over(
    house, shadowed, eventually, counts, is_idle, echo
):
    leaving = await house.fake(
        lambda asked: (503, {"x-sagehen-not-started": "1", "connection": "close"}, b"")
    )
    staying = await house.fake(echo)
    await shadowed("unix:/nowhere", leaving, staying)
    for _ in range(12):
        await ours(house)
    await eventually(is_idle)
    assert len(staying.asked) == 12
    assert leaving.asked
    told = counts()
    assert (told.invocations, told.model_errors, told.shadow_copies_dropped) == (12, 0, 0)


async def test_copies_spread_over_the_instances(house, shadowed, eventually, is_idle, echo):
    places = [await house.fake(echo) for _ in range(3)]
    await shadowed(*places)
    for _ in range(60):
        await ours(house)
    await eventually(is_idle)
    assert all(10 <= len(place.asked) <= 30 for place in places)


async def test_a_shadow_cannot_be_asked_for(house, shadowed, echo, counts):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    got = await house.invoke(**{TARGET: "Next"})
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"] == (
        "Endpoint price has no production variant Next. It has: AllTraffic."
    )
    assert (next_one.asked, counts().invocations) == ([], 0)


async def test_a_request_for_the_production_variant_is_copied(house, shadowed, eventually, echo):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    await ours(house, **{TARGET: "AllTraffic"})
    await eventually(lambda: next_one.asked)
    assert [copy.body for copy in next_one.asked] == [b"1,2"]


async def test_a_refused_request_is_not_copied(house, shadowed, echo, is_idle):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    assert (await house.invoke(secret="other")).status == 403
    assert (await house.invoke(Accept="a" * 1025)).status == 400
    assert is_idle()
    assert next_one.asked == []


async def test_a_session_is_not_copied(house, shadowed, echo, is_idle):
    next_one = await house.fake(echo)
    await shadowed(next_one)
    await ours(house, X_Amzn_SageMaker_Session_Id="NEW_SESSION")
    assert is_idle()
    assert next_one.asked == []


async def test_a_request_that_production_fails_is_copied(house, variant, eventually, echo):
    next_one = await house.fake(echo)
    house.route(variant("unix:/nowhere"), shadow=variant(next_one, name="Next"))
    await house.start()
    assert (await house.invoke()).status == 503
    await eventually(lambda: next_one.asked)


async def test_a_copy_does_not_mind_that_the_client_leaves(
    house, variant, eventually, counts, is_idle
):
    held = Held()
    slow, next_one = await house.fake(never), await house.fake(held.answer)
    house.route(variant(slow), shadow=variant(next_one, name="Next"))
    await house.start()
    client = await house.connect()
    client.send(house.signed())
    await eventually(lambda: slow.asked and next_one.asked)
    client.close()
    await eventually(lambda: slow.lost)
    held.free.set()
    await eventually(is_idle)
    assert (counts().invocations, counts().model_errors) == (1, 0)


async def test_an_instance_that_leaves_finishes_its_copy(
    house, shadowed, variant, production, eventually, counts, is_idle, echo
):
    held = Held()
    leaving, coming = await house.fake(held.answer), await house.fake(echo)
    await shadowed(leaving)
    await ours(house)
    await eventually(lambda: leaving.asked)
    house.route(variant(production), shadow=variant(coming, name="Next"))
    house.gateway._routes.refresh()
    await ours(house)
    await eventually(lambda: coming.asked)
    held.free.set()
    await eventually(is_idle)
    await eventually(lambda: leaving.lost)
    assert (counts().invocations, counts().model_errors) == (2, 0)


async def test_waiting_copies_never_reach_the_production_variant_a_shadow_became(
    house, shadowed, variant, production, eventually, is_idle
):
    held = Held()
    await shadowed(await house.fake(held.answer), slots=1)
    for number in range(3):
        await ours(house, b"copied %d" % number)
    await eventually(lambda: house.gateway._routes.queued == 2)
    promoted = await house.fake(lambda asked: (200, {}, b"promoted"))
    house.route(variant(promoted, name="Next"))
    house.gateway._routes.refresh()
    got = await house.invoke(b"asked")
    assert got.body == b"promoted"
    held.free.set()
    await eventually(is_idle)
    assert [one.body for one in promoted.asked] == [b"asked"]


async def test_both_variants_counts_are_told_to_control(house, shadowed, eventually, is_idle):
    await house.control(lambda asked: (200, {}, b""))
    held = Held()
    await shadowed(await house.fake(held.answer), settings={"max_shadow_copies": 2})
    for _ in range(3):
        await ours(house)
    house.clock.advance(0.25)
    held.free.set()
    await eventually(is_idle)
    await house.stop()
    told = {one["variant"]: one for one in house.told["variants"]}
    production, shadow = told["AllTraffic"], told["Next"]
    assert (production["Invocations"], production["ShadowCopiesDropped"]) == (3, 0)
    assert production["ModelLatency"]["sum"] == 0
    assert (shadow["Invocations"], shadow["ShadowCopiesDropped"]) == (2, 1)
    assert shadow["InvocationsPerInstance"] == 2
    assert (shadow["ModelLatency"]["count"], shadow["ModelLatency"]["sum"]) == (2, 500_000)
    assert shadow["OverheadLatency"]["count"] == 2


async def test_the_copies_of_one_that_has_left_are_ended_with_the_gateway(
    house, shadowed, variant, production, eventually
):
    next_one = await house.fake(never)
    await shadowed(next_one)
    await ours(house)
    await eventually(lambda: next_one.asked)
    house.route(variant(production))
    await eventually(lambda: len(list(house.gateway._routes.instances())) == 1)
    assert next_one.lost == 0
    await house.stop()
    await eventually(lambda: next_one.lost == 1)
