"""Copies of requests for a shadow variant, and that production knows nothing of them."""

import pytest

from support.shadows import STREAM, STREAM_HEAD, TARGET, Held, never, ours


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
