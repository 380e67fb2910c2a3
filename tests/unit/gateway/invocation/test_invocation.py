"""InvokeEndpoint from the caller's side, with one container or several behind."""

import asyncio
from unittest.mock import ANY

import pytest

from sagehen.frame.routes import AsyncPlan, Route, RoutingStrategy
from sagehen.gateway.metrics.counters import LONGEST_ERROR

LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS


async def test_an_answer_is_passed_on(house, variant):
    container = await house.fake(
        lambda asked: (201, {"Content-Type": "text/csv", "X-Secret": "no"}, b"42")
    )
    house.route(variant(container))
    await house.start()
    got = await house.invoke(b"1,2", Content_Type="text/csv", Accept="text/csv")
    assert (got.status, got.body) == (200, b"42")
    assert got.headers["content-type"] == "text/csv"
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert len(got.headers["x-amzn-requestid"]) == 36
    assert "x-secret" not in got.headers
    assert "x-amzn-sagemaker-custom-attributes" not in got.headers


async def test_a_container_gets_what_concerns_it_and_nothing_else(house, variant, echo):
    container = await house.fake(echo)
    house.route(variant(container))
    await house.start()
    await house.invoke(
        b"1,2",
        Content_Type="text/csv",
        Accept="application/json",
        X_Amzn_SageMaker_Custom_Attributes="trace=7",
        User_Agent="boto",
    )
    (asked,) = container.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/invocations", b"1,2")
    assert set(asked.fields) == {
        "host",
        "content-length",
        "content-type",
        "accept",
        "x-amzn-sagemaker-custom-attributes",
    }


async def test_custom_attributes_come_back_only_from_the_container(house, variant):
    name = "X-Amzn-SageMaker-Custom-Attributes"
    house.route(variant(await house.fake(lambda asked: (200, {name: "mine"}, b""))))
    await house.start()
    got = await house.invoke(X_Amzn_SageMaker_Custom_Attributes="theirs")
    assert got.headers[name.lower()] == "mine"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"secret": "other"}, "InvalidSignatureException"),
        ({"service": "s3"}, "SignatureDoesNotMatch"),
    ],
)
async def test_a_request_must_be_signed_for_us(house, variant, echo, wrong, code):
    container = await house.fake(echo)
    house.route(variant(container))
    await house.start()
    got = await house.invoke(**wrong)
    assert (got.status, got.headers["x-amzn-errortype"]) == (403, code)
    assert container.asked == []


async def test_the_body_is_part_of_what_is_signed(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start()
    client = await house.connect()
    client.send(house.signed(b"1,2")[:-1] + b"3")
    assert (await client.answer()).status == 403


async def test_an_unsigned_request_is_refused(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start()
    client = await house.connect()
    client.send(
        b"POST /endpoints/price/invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
    )
    got = await client.answer()
    assert got.status == 403
    assert got.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"


async def test_no_endpoint_is_said_to_be_missing_before_control_has_said_which_there_are(
    house, variant, echo
):
    await house.start()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert "has just started" in got.json["Message"]
    house.route(variant(await house.fake(echo)))
    async with asyncio.timeout(120):
        while (await house.invoke()).status == 503:  # The table is read again after a millisecond.
            pass
    assert (await house.invoke()).status == 200
    assert (await house.invoke(path="/endpoints/nobody/invocations")).status == 400


@pytest.mark.parametrize("name", ["nobody", "Price"])
async def test_an_endpoint_is_found_by_its_exact_name(house, variant, echo, name):
    house.route(variant(await house.fake(echo)))
    await house.start()
    got = await house.invoke(path=f"/endpoints/{name}/invocations")
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json == {"Message": f"Endpoint {name} of account 000000000000 not found."}


@pytest.mark.parametrize(
    "header",
    [
        {"X_Amzn_SageMaker_Session_Id": "-not-an-id"},
        {"X_Amzn_SageMaker_Enable_Explanations": "`true`"},
        {"X_Amzn_SageMaker_Target_Container_Hostname": "second"},
        {"X_Amzn_SageMaker_Inference_Component": "part"},
        {"X_Amzn_SageMaker_Prefix_Aware_Id": "id"},
        {"X_Amzn_SageMaker_Target_Model": "a.tar.gz"},
        {"X_Amzn_SageMaker_Target_Variant": "other"},
        {"X_Amzn_SageMaker_Target_Variant": "a" * 64},
        {"X_Amzn_SageMaker_Inference_Id": "i" * 65},
        {"X_Amzn_SageMaker_Custom_Attributes": "c" * 1025},
        {"Content_Type": "c" * 1025},
        {"Accept": "a" * 1025},
    ],
)
async def test_what_an_endpoint_cannot_do_is_refused(house, variant, echo, header):
    container = await house.fake(echo)
    house.route(variant(container))
    await house.start()
    got = await house.invoke(**header)
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"]
    assert container.asked == []


@pytest.mark.parametrize("action", ["invocations", "invocations-response-stream"])
@pytest.mark.parametrize("instances", [0, 1])
async def test_an_asynchronous_endpoint_answers_nobody_at_once(
    house, variant, echo, action, instances
):
    container = await house.fake(echo)
    plan = AsyncPlan(output_path="s3://bucket/out")
    routed = variant(*[container][:instances])
    house.table(Route(endpoint_name="price", variants=(routed,), asynchronous=plan))
    await house.start()
    got = await house.invoke(path=f"/endpoints/price/{action}")
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"].startswith("Endpoint price is asynchronous")
    assert "Call InvokeEndpointAsync" in got.json["Message"]
    assert container.asked == []


async def test_control_takes_asynchronous_invocations(house):
    control = await house.control(
        lambda asked: (202, {"X-Amzn-SageMaker-OutputLocation": "x"}, b"")
    )
    await house.start()
    got = await house.invoke(b"[1]", path="/endpoints/price/async-invocations")
    assert (got.status, got.headers["x-amzn-sagemaker-outputlocation"]) == (202, "x")
    (asked,) = [one for one in control.asked if "internal" not in one.path]
    assert (asked.path, asked.body) == ("/endpoints/price/async-invocations", b"[1]")


async def test_a_variant_may_be_named_and_has_its_weight_otherwise(house, variant, echo):
    main, spare = await house.fake(echo), await house.fake(echo)
    house.route(variant(main, name="Main"), variant(spare, name="Spare", weight=0))
    await house.start()
    for _ in range(5):
        got = await house.invoke()
        assert got.headers["x-amzn-invoked-production-variant"] == "Main"
    got = await house.invoke(X_Amzn_SageMaker_Target_Variant="Spare")
    assert got.headers["x-amzn-invoked-production-variant"] == "Spare"
    assert (len(main.asked), len(spare.asked)) == (5, 1)


async def test_least_outstanding_goes_around_a_busy_instance(house, variant):
    begun, release = asyncio.Event(), asyncio.Event()

    async def answer(asked):
        if asked.body == b"slow":
            begun.set()
            await release.wait()
        return 200, {}, b""

    one, two = await house.fake(answer), await house.fake(answer)
    house.route(variant(one, two, strategy=LEAST))
    await house.start()
    slow = asyncio.create_task(house.invoke(b"slow"))
    await begun.wait()
    for _ in range(4):
        await house.invoke(b"quick")
    assert sorted((len(one.asked), len(two.asked))) == [1, 4]
    release.set()
    assert (await slow).status == 200


async def test_more_than_can_be_held_is_refused_at_once(house, variant, eventually):
    release = asyncio.Event()

    async def slow(asked):
        await release.wait()
        return 200, {}, b""

    container = await house.fake(slow)
    house.route(variant(container))
    await house.start(max_queued_invocations=2)
    held = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: len(container.asked) == 2)
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    release.set()
    assert [(await one).status for one in held] == [200, 200]


async def test_a_client_that_leaves_frees_the_instance(house, variant, eventually):
    async def never(asked):
        await asyncio.Event().wait()

    container = await house.fake(never)
    house.route(variant(container))
    await house.start(max_queued_invocations=1)
    client = await house.connect()
    client.send(house.signed())
    await eventually(lambda: container.asked)
    client.close()
    await eventually(lambda: container.lost)
    assert house.outstanding() == 0


async def test_the_last_error_is_told_to_control_without_its_traceback(house, variant):
    def answer(asked):
        return 500, {}, b"KeyError: " + asked.body + b"\nTraceback (most recent call last):\n..."

    await house.control(lambda asked: (200, {}, b""))
    house.route(variant(await house.fake(answer)))
    await house.start()
    for body in (b"first", b"x" * 1000):
        await house.invoke(body)
    await house.stop()
    (counts,) = house.told["variants"]
    message = "KeyError: " + "x" * (LONGEST_ERROR - 10)
    assert counts["LastError"] == {"at": ANY, "status": 500, "message": message}


async def test_counts_are_told_to_control(house, variant):
    def answer(asked):
        house.clock.advance(0.25)
        return int(asked.body), {}, b""

    await house.control(lambda asked: (200, {}, b""))
    house.route(variant(await house.fake(answer)))
    await house.start()
    for status in (200, 200, 400, 500):
        await house.invoke(b"%d" % status)
    await house.stop()
    (counts,) = house.told["variants"]
    assert counts["endpoint"] == "price"
    assert counts["variant"] == "AllTraffic"
    assert counts["Invocations"] == 4
    assert counts["Invocation4XXErrors"] == 1
    assert counts["Invocation5XXErrors"] == 1
    assert counts["InvocationModelErrors"] == 2
    assert counts["InvocationsPerInstance"] == 4
    assert (counts["ModelLatency"]["count"], counts["ModelLatency"]["sum"]) == (4, 1_000_000)
    assert len(counts["ModelLatency"]["buckets"]) == 1
    assert (counts["OverheadLatency"]["count"], counts["OverheadLatency"]["sum"]) == (4, 0)
    assert counts["ModelCacheHitSamples"] == 0


async def test_an_instance_s_share_and_what_is_in_flight_are_told(house, variant, eventually):
    async def never(asked):
        await asyncio.Event().wait()

    def told():
        return house.told["variants"][0]

    def in_flight_is(number):
        expected = {"now": number, "lowest": number, "highest": number}
        return house.told and told()["ConcurrentRequestsPerModel"] == expected

    await house.control(lambda asked: (200, {}, b""))
    containers = [await house.fake(never) for _ in range(4)]
    house.route(variant(*containers))
    await house.start()
    clients = [await house.connect() for _ in range(3)]
    for client in clients:
        client.send(house.signed())
    await eventually(lambda: sum(len(one.asked) for one in containers) == 3)
    await eventually(lambda: in_flight_is(3))
    for client in clients:
        client.close()
    await eventually(lambda: in_flight_is(0))
    assert told()["InvocationsPerInstance"] == 0.75
    assert told()["ModelLatency"]["count"] == 0


async def test_a_burst_does_not_overflow_a_containers_queue_of_connections(house, variant):
    asked = 0

    async def answer(head, reader, writer):
        nonlocal asked
        asked += 1
        await reader.readexactly(3)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    address = await house.raw(answer, house.home.run / "narrow.sock", backlog=1)
    house.route(variant(address))
    await house.start()
    answers = await asyncio.gather(*(house.invoke() for _ in range(100)))
    assert {got.status for got in answers} == {200}
    assert asked == 100
