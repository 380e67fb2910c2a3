"""Direct invocation: the container that a request names, and no other."""

import asyncio

import msgspec
import pytest

from sagehen.frame.routes import ExecutionMode
from support.several import several

DIRECT = ExecutionMode.DIRECT
HEADER = "X_Amzn_SageMaker_Target_Container_Hostname"
STREAM = "/endpoints/price/invocations-response-stream"


def says(text):
    return lambda asked: (200, {"Content-Type": "text/plain"}, text)


@pytest.fixture
async def clean(house):
    return await house.fake(says(b"cleaned"))


@pytest.fixture
async def predict(house):
    return await house.fake(says(b"predicted"))


def ask(house, hostname, **more):
    return house.invoke(**{HEADER: hostname}, **more)


def columned(route, first=0):
    """`route` with a column of the in-flight table for each container."""
    columns = iter(range(first, 100))

    def placed(one):
        return msgspec.structs.replace(
            one,
            containers=tuple(
                msgspec.structs.replace(each, inflight_column=next(columns))
                for each in one.containers
            ),
        )

    return msgspec.structs.replace(route, instances=tuple(map(placed, route.instances)))


async def test_only_the_one_that_is_named_is_asked(house, clean, predict):
    house.route(several((clean, predict), mode=DIRECT))
    await house.start()
    got = await ask(house, "predict", Accept="text/x-wanted")
    assert (got.status, got.body) == (200, b"predicted")
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert (await ask(house, "clean")).body == b"cleaned"
    assert (len(clean.asked), len(predict.asked)) == (1, 1)
    assert predict.asked[0].fields["accept"] == "text/x-wanted"
    got = await ask(house, "predict", path=STREAM)
    assert b"predicted" in got.body


@pytest.mark.parametrize("path", ["/endpoints/price/invocations", STREAM])
async def test_one_has_to_be_named_and_has_to_be_there(house, clean, predict, path):
    house.route(several((clean, predict), mode=DIRECT))
    await house.start()
    got = await house.invoke(path=path)
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"] == (
        f"Request {got.headers['x-amzn-requestid']} is missing a target container hostname header. "
        "Invocations of an endpoint whose containers are invoked directly name one by "
        "TargetContainerHostname: clean, predict."
    )
    got = await ask(house, "explain", path=path)
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"] == (
        "Endpoint price has no container explain. It has: clean, predict."
    )
    assert clean.asked == predict.asked == []


@pytest.mark.parametrize("kind", ["one container", "a pipeline"])
async def test_elsewhere_none_may_be_named(house, variant, clean, predict, kind):
    house.route(variant(clean) if kind == "one container" else several((clean, predict)))
    await house.start()
    got = await ask(house, "clean")
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"] == (
        "Endpoint price is not configured for direct invocation and does not support target "
        "container hostname header."
    )


async def test_each_has_slots_of_its_own(house, clean, eventually):
    go = asyncio.Event()

    async def waits(asked):
        await go.wait()
        return 200, {}, b"predicted"

    predict = await house.fake(waits)
    house.route(columned(several((clean, predict), mode=DIRECT, slots=1)))
    await house.start()
    callers = [asyncio.create_task(ask(house, "predict")) for _ in range(3)]
    await eventually(lambda: house.gateway._routes.queued == 2)
    assert (await ask(house, "clean")).body == b"cleaned"
    inflight = house.gateway._routes._inflight
    assert [inflight.outstanding(column) for column in (0, 1)] == [0, 1]
    go.set()
    assert [(await one).body for one in callers] == [b"predicted"] * 3
    assert [inflight.outstanding(column) for column in (0, 1)] == [0, 0]


async def test_without_instances_containers_are_known_all_the_same(house, clean, predict):
    route = several((clean, predict), mode=DIRECT)
    house.route(msgspec.structs.replace(route, instances=()))
    await house.start()
    assert (await ask(house, "clean")).status == 503
    assert (await ask(house, "explain")).status == 400


async def test_who_fails_is_named(house, clean):
    failing = await house.fake(lambda asked: (500, {}, b"boom"))
    house.route(several((clean, failing), mode=DIRECT))
    await house.start()
    got = await ask(house, "predict")
    assert got.json["Message"].startswith("Received server error (500) from predict with message")


async def test_an_instance_that_does_not_listen_is_passed_over(house, clean, predict):
    nobody = f"unix:{house.home.run}/nobody.sock"
    house.route(several((nobody, nobody), (clean, predict), mode=DIRECT))
    await house.start()
    answers = [await ask(house, "predict") for _ in range(8)]
    assert [one.body for one in answers] == [b"predicted"] * 8


async def test_what_is_counted_is_the_containers(house, clean):
    failing = await house.fake(lambda asked: (400, {}, b"boom"))
    await house.control(lambda asked: None)
    house.route(several((clean, failing), mode=DIRECT))
    await house.start()
    await ask(house, "clean")
    await ask(house, "predict")
    await ask(house, "predict")
    await house.stop()
    told = {one["container"]: one for one in house.told["variants"]}
    assert not any(one["is_stage"] for one in told.values())
    assert {key: one["Invocations"] for key, one in told.items()} == {
        "": 0,
        "clean": 1,
        "predict": 2,
    }
    assert (told["predict"]["Invocation4XXErrors"], told["clean"]["ModelLatency"]["count"]) == (
        2,
        1,
    )


async def test_a_session_is_kept_by_the_container_that_began_it(house, eventually):
    def begins(text):
        headers = {"X-Amzn-SageMaker-New-Session-Id": "s-1"}
        return lambda asked: (200, headers, text)

    fakes = [await house.fake(begins(b"%d" % number)) for number in range(4)]
    house.route(several(tuple(fakes[:2]), tuple(fakes[2:]), mode=DIRECT))
    await house.start()
    session = {"X_Amzn_SageMaker_Session_Id": "NEW_SESSION"}
    first = await ask(house, "predict", **session)
    answers = [await ask(house, "predict", X_Amzn_SageMaker_Session_Id="s-1") for _ in range(6)]
    assert {one.body for one in answers} == {first.body}
    got = await house.invoke(X_Amzn_SageMaker_Session_Id="s-1")
    assert "is missing a target container hostname header" in got.json["Message"]


async def test_several_may_hold_many_models_each_its_own(house, echo):
    loads = []

    def agent(asked):
        if not asked.path.endswith("/touch"):
            loads.append(asked.path)
        return 200, {}, b'{"model_name": "m-1", "hit": false}'

    await house.agent(agent)
    fakes = await house.fake(echo), await house.fake(echo)
    route = several(fakes, mode=DIRECT, many="clean")
    many = tuple(msgspec.structs.replace(one, multi_model=True) for one in route.containers)
    house.route(msgspec.structs.replace(route, containers=many))
    await house.start()
    for hostname in ("clean", "predict", "clean"):
        got = await ask(house, hostname, X_Amzn_SageMaker_Target_Model="a.tar.gz")
        assert got.status == 200
    assert loads == [
        "/instances/i-0/containers/clean/models",
        "/instances/i-0/containers/predict/models",
    ]
    assert fakes[1].asked[0].path == "/models/m-1/invoke"


async def test_a_model_may_be_named_only_where_there_are_many(house, echo):
    fakes = await house.fake(echo), await house.fake(echo)
    house.route(several(fakes, mode=DIRECT, many="clean"))
    await house.start()
    got = await ask(house, "predict", X_Amzn_SageMaker_Target_Model="a.tar.gz")
    assert "is not a multi-model endpoint" in got.json["Message"]
    got = await ask(house, "clean")
    assert "is missing a target model header" in got.json["Message"]


async def test_a_container_stays_the_same_through_changes_of_the_table(house, clean, predict):
    route = columned(several((clean, predict), mode=DIRECT))
    house.route(route)
    await house.start()
    await ask(house, "clean")
    before = list(house.gateway._routes.instances())
    house.route(msgspec.structs.replace(route, weight=2))
    house.gateway._routes.refresh()
    after = list(house.gateway._routes.instances())
    assert len(before) == 2
    assert all(one is other for one, other in zip(before, after, strict=True))
