"""Multi-model endpoints: who loads what, once, and what is said when it cannot be."""

import asyncio
from collections import Counter

import msgspec
import pytest
from botocore.exceptions import ClientError
from msgspec import structs

HOUSTON, CHICAGO = "Houston_TX.tar.gz", "Chicago_IL.tar.gz"


def invoke(house, model=HOUSTON, body=b"1,2"):
    return house.invoke(body, X_Amzn_SageMaker_Target_Model=model)


class Agent:
    """Gives each model a name; remembers what it was asked."""

    def __init__(self):
        self.loads = []
        self.touched = Counter()
        self.given_back = Counter()
        self.short = []
        self.keep = True
        self.failure = None
        self.ready = asyncio.Event()
        self.ready.set()

    async def __call__(self, asked):
        body = msgspec.json.decode(asked.body)
        if asked.path.endswith("/touch"):
            self.touched.update(body.get("model_names", ()))
            self.given_back.update(body.get("given_back", {}))
            return 204, {}, b""
        self.loads.append((asked.path.split("/")[2], body["target_model"], body["wait_seconds"]))
        self.short.append(body["short_of_memory"])
        await self.ready.wait()
        if self.failure is not None:
            status, message = self.failure
            return status, {}, msgspec.json.encode({"code": "X", "message": message})
        name = "m-" + body["target_model"][:3]
        answer = {"model_name": name, "hit": False, "wait_microseconds": 5, "keep": self.keep}
        return 200, {}, msgspec.json.encode(answer)


@pytest.fixture
async def agent(house):
    agent = Agent()
    await house.agent(agent)
    return agent


async def test_a_model_is_loaded_at_its_first_call_only(house, agent, variant, echo):
    container = await house.fake(echo)
    house.route(variant(container, multi_model=True))
    await house.start()
    for _ in range(3):
        assert (await invoke(house)).body == b"1,2"
    assert (await invoke(house, CHICAGO)).status == 200
    assert [(one, model) for one, model, _ in agent.loads] == [
        ("AllTraffic-0", HOUSTON),
        ("AllTraffic-0", CHICAGO),
    ]
    assert [asked.path for asked in container.asked] == [
        *["/models/m-Hou/invoke"] * 3,
        "/models/m-Chi/invoke",
    ]
    assert container.asked[0].fields["x-amzn-sagemaker-target-model"] == HOUSTON


async def test_all_who_wait_share_one_load(house, agent, variant, echo, eventually):
    agent.ready.clear()
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    waiting = [asyncio.create_task(invoke(house)) for _ in range(5)]
    await eventually(lambda: house.outstanding() == 5)
    agent.ready.set()
    assert [(await one).status for one in waiting] == [200] * 5
    assert len(agent.loads) == 1
    assert agent.loads[0][2] == pytest.approx(60, abs=0.5)


async def test_the_use_of_models_is_told(house, agent, variant, echo, eventually):
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    await invoke(house)
    await invoke(house, CHICAGO)
    await eventually(lambda: len(agent.touched) == 2)
    assert agent.touched.keys() == {"m-Hou", "m-Chi"}


async def test_a_model_is_lent_until_the_last_who_needs_it_is_answered(
    house, agent, variant, eventually
):
    let_go = asyncio.Event()

    async def answer(asked):
        if len(container.asked) == 1:
            await let_go.wait()
        return 200, {}, asked.body

    container = await house.fake(answer)
    house.route(variant(container, multi_model=True))
    await house.start()
    first = asyncio.create_task(invoke(house))
    await eventually(lambda: container.asked)
    agent.touched.clear()
    await eventually(lambda: agent.touched["m-Hou"] > 2)  # However long it takes.
    assert (await invoke(house)).status == 200
    assert not agent.given_back
    let_go.set()
    assert (await first).status == 200
    await eventually(lambda: agent.given_back == {"m-Hou": 1})
    assert (await invoke(house)).status == 200
    assert len(agent.loads) == 1


async def test_without_cache_a_model_is_asked_for_each_time(
    house, agent, variant, echo, eventually
):
    agent.keep = False
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    for times in (1, 2, 3):
        assert (await invoke(house)).status == 200
        await eventually(lambda times=times: agent.given_back == {"m-Hou": times})
        assert len(agent.loads) == times


async def test_a_model_that_nobody_waited_for_is_given_back(
    house, agent, variant, echo, eventually
):
    agent.ready.clear()
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    client = await house.connect()
    client.send(house.signed(X_Amzn_SageMaker_Target_Model=HOUSTON))
    await eventually(lambda: agent.loads)
    client.close()
    await eventually(lambda: house.outstanding() == 0)
    agent.ready.set()
    await eventually(lambda: agent.given_back == {"m-Hou": 1})


async def counted(house, *names):
    """What control was told of the only variant, when the gateway has stopped."""
    await house.stop()
    (counts,) = house.told["variants"]
    return [counts[name] for name in names]


HITS = ("ModelCacheHit", "ModelCacheHitSamples", "ModelLoadingWaitTimeCount")


async def test_hits_and_waits_are_counted(house, agent, variant, echo):
    await house.control(lambda asked: None)
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    for _ in range(4):
        await invoke(house)
    assert await counted(house, *HITS) == [3, 4, 1]


@pytest.mark.parametrize("status", [400, 424, 429, 503])
async def test_who_waited_in_vain_has_missed_too(house, agent, variant, echo, status):
    await house.control(lambda asked: None)
    agent.failure = (status, "No.")
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    assert (await invoke(house)).status != 200
    assert await counted(house, *HITS[:2]) == [0, 1]


async def test_what_the_container_has_lost_is_a_miss(house, agent, variant, echo):
    await house.control(lambda asked: None)
    container = await house.fake(
        lambda asked: (404 if len(container.asked) == 2 else 200, {}, asked.body)
    )
    house.route(variant(container, multi_model=True))
    await house.start()
    for _ in range(3):
        assert (await invoke(house)).status == 200
    assert await counted(house, *HITS) == [1, 3, 2]


@pytest.mark.parametrize("status", [404, 507])
async def test_a_model_that_the_container_lost_is_loaded_again(house, agent, variant, echo, status):
    def forgetful(asked):
        return (status, {}, b"") if len(container.asked) == 2 else (200, {}, asked.body)

    container = await house.fake(forgetful)
    house.route(variant(container, multi_model=True))
    await house.start()
    assert [(await invoke(house)).status for _ in range(3)] == [200] * 3
    assert (len(agent.loads), len(container.asked)) == (2, 4)
    assert agent.short == [False, status == 507]


async def test_a_container_that_never_has_the_model_is_not_asked_for_ever(house, agent, variant):
    container = await house.fake(lambda asked: (404, {}, b"gone"))
    house.route(variant(container, multi_model=True))
    await house.start()
    got = await invoke(house)
    assert (got.status, got.json["OriginalStatusCode"]) == (424, 404)
    assert got.json["OriginalMessage"] == "gone"
    assert len(container.asked) == 3


@pytest.mark.parametrize(
    ("failure", "status", "code", "message"),
    [
        ((400, "There is no object."), 400, "ValidationError", "There is no object."),
        ((404, "No such instance."), 503, "ServiceUnavailable", "No such instance. Try again"),
        ((503, "Stopping."), 503, "ServiceUnavailable", "Stopping. Try again"),
        ((424, "bad pickle"), 424, "ModelError", '(500) from primary with message "bad pickle".'),
        ((507, "no room"), 424, "ModelError", '(507) from primary with message "no room".'),
        ((429, "still loading"), 429, "ModelNotReadyException", "still loading"),
    ],
)
async def test_why_a_model_cannot_be_loaded_is_told(
    house, agent, variant, echo, failure, status, code, message, limits_met
):
    agent.failure = failure
    container = await house.fake(echo)
    house.route(variant(container, multi_model=True))
    await house.start()
    got = await invoke(house)
    assert (got.status, got.headers["x-amzn-errortype"]) == (status, code)
    assert message in got.json["Message"]
    assert container.asked == []
    assert house.outstanding() == 0
    assert limits_met() == ({"loading": 1} if status == 429 else {})


async def test_without_an_agent_the_caller_is_told_to_try_again(house, variant, echo):
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    got = await invoke(house)
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")


async def test_a_load_that_takes_too_long_goes_on_without_the_caller(
    house, agent, variant, echo, eventually, limits_met
):
    agent.ready.clear()
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    waiting = asyncio.create_task(invoke(house))
    await eventually(lambda: agent.loads)
    house.clock.advance(60)
    got = await waiting
    assert (got.status, got.headers["x-amzn-errortype"]) == (429, "ModelNotReadyException")
    agent.ready.set()
    assert (await invoke(house)).status == 200
    assert len(agent.loads) == 1
    assert limits_met() == {"loading": 1}


async def test_a_caller_that_leaves_does_not_stop_the_load(house, agent, variant, echo, eventually):
    agent.ready.clear()
    container = await house.fake(echo)
    house.route(variant(container, multi_model=True))
    await house.start()
    client = await house.connect()
    client.send(house.signed(X_Amzn_SageMaker_Target_Model=HOUSTON))
    await eventually(lambda: agent.loads)
    client.close()
    await eventually(lambda: house.outstanding() == 0)
    agent.ready.set()
    assert (await invoke(house)).status == 200
    assert (len(agent.loads), len(container.asked)) == (1, 1)


async def test_a_model_has_its_instance(house, agent, variant, echo):
    containers = [await house.fake(echo) for _ in range(3)]
    house.route(variant(*containers, multi_model=True))
    await house.start()
    for _ in range(3):
        for model in (f"{number}.tar.gz" for number in range(12)):
            await invoke(house, model)
    assert len(agent.loads) == 12
    assert len({instance for instance, _, _ in agent.loads}) == 3


async def test_an_instance_that_was_started_again_is_not_asked_for_what_it_had(
    house, agent, variant, echo, eventually
):
    container = await house.fake(echo)

    def life(run_id):
        made = variant(container, multi_model=True)
        return structs.replace(
            made, instances=tuple(structs.replace(i, run_id=run_id) for i in made.instances)
        )

    house.route(life("first"))
    await house.start()
    await invoke(house)
    house.route(life("second"))
    await eventually(lambda: not house.gateway._context.models.holds("AllTraffic-0", HOUSTON))
    assert (await invoke(house)).status == 200
    assert (len(agent.loads), len(container.asked)) == (2, 2)


async def test_where_a_model_is_other_gateways_and_newcomers_do_not_change(
    house, agent, variant, echo, eventually
):
    first, *more = [await house.fake(echo) for _ in range(6)]
    house.route(variant(first, multi_model=True))
    await house.start()
    models = [f"{number}.tar.gz" for number in range(12)]
    for model in models:
        await invoke(house, model)
    house.route(variant(first, *more, multi_model=True))
    routes = house.gateway._routes
    await eventually(lambda: len(list(routes.instances())) == 1 + len(more))
    for model in models:
        await invoke(house, model)
    assert {instance for instance, _, _ in agent.loads} == {"AllTraffic-0"}
    assert len(agent.loads) == 12


async def test_names_beyond_ascii_are_read_as_they_are_meant(house, agent, variant, echo):
    house.route(variant(await house.fake(echo), multi_model=True))
    await house.start()
    asked = {"EndpointName": "price", "Body": b"1", "TargetModel": "a"}
    # The first character may be any, by the service model's pattern; the others are ASCII.
    await house.boto("invoke_endpoint", **{**asked, "TargetModel": "é.tar.gz"})
    assert [model for _, model, _ in agent.loads] == ["é.tar.gz"]
    for name in ("TargetModel", "CustomAttributes"):
        with pytest.raises(ClientError, match="Value 'Zürich' at"):
            await house.boto("invoke_endpoint", **{**asked, name: "Zürich"})


async def test_an_instance_that_left_is_forgotten(house, agent, variant, echo, eventually):
    one, other = await house.fake(echo), await house.fake(echo)
    house.route(variant(one, multi_model=True, name="A"))
    await house.start()
    await invoke(house)
    house.route(variant(other, multi_model=True, name="B"))

    for _ in range(5000):
        got = await invoke(house)
        if got.headers["x-amzn-invoked-production-variant"] == "B":
            break
    assert [instance for instance, _, _ in agent.loads] == ["A-0", "B-0"]
    await eventually(lambda: one.lost == one.connections)


async def test_a_target_model_is_needed_here_and_refused_elsewhere(
    house, variant, echo, eventually
):
    container = await house.fake(echo)
    house.route(variant(container, multi_model=True))
    await house.start()
    got = await house.invoke()
    request_id = got.headers["x-amzn-requestid"]
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"].startswith(f"Request {request_id} is missing a target model header")
    house.route(variant(container), endpoint="plain")
    await eventually(lambda: house.gateway._routes.get("plain"))
    got = await house.invoke(
        path="/endpoints/plain/invocations", X_Amzn_SageMaker_Target_Model=HOUSTON
    )
    assert got.json["Message"] == (
        "Endpoint plain is not a multi-model endpoint and does not support target model header."
    )


@pytest.mark.parametrize("status", [404, 507])
async def test_a_status_that_the_model_chose_is_its_answer(house, agent, variant, status):
    def answer(asked):
        return status, {"x-sagehen-by-model": "1"}, b"no such house"

    container = await house.fake(answer)
    house.route(variant(container, multi_model=True))
    await house.start()
    got = await house.invoke(X_Amzn_SageMaker_Target_Model="a.tar.gz")
    assert (got.status, got.json["OriginalStatusCode"]) == (424, status)
    assert len(container.asked) == 1
