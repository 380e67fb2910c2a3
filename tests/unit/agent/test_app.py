"""The agent behind its socket, asked by its client: as control and the gateways see it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sagehen.agent.agent import Agent
from sagehen.agent.app import create_app
from sagehen.agent.client import AgentClient
from sagehen.agent.messages import LoadedModel, LoadRequest, TouchRequest
from sagehen.agent.node import Pace
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.frame.container_specs import (
    InstanceOwner,
    InstanceReport,
    InstanceSpec,
    InstanceState,
)
from sagehen.http1.call import LocalAnswer, call_once
from sagehen.services.s3.storage import ObjectStore
from support.agents import served

MakeSpec = Callable[..., InstanceSpec]
Put = Callable[[str, bytes], None]
MODELS = {"multi_model": True, "model_data_url": "s3://bucket/models/"}


@pytest.fixture
async def agent(settings: Settings, home: Home, objects: ObjectStore) -> AsyncIterator[Agent]:
    agent = Agent(settings, home, objects, SYSTEM, pace=Pace(stop_seconds=5))
    await agent.start()
    yield agent
    await agent.stop()


@pytest.fixture
async def client(agent: Agent, home: Home) -> AsyncIterator[AgentClient]:
    async with served(create_app(agent), home.agent_socket):
        yield AgentClient(home.agent_socket)


async def wait_for(
    client: AgentClient, state: InstanceState | None, instance_id: str = "i-1"
) -> InstanceReport | None:
    """The instance's report once it is in that state; None means once it is gone."""
    listed = await client.instances()
    while True:
        found = {report.instance_id: report for report in listed.instances}.get(instance_id)
        if (found.state if found else None) == state:
            return found
        listed = await client.instances(since=listed.version, wait_seconds=30)


async def ask(home: Home, method: str, path: str, body: Any = None) -> LocalAnswer:
    data = msgspec.json.encode(body) if body is not None else b""
    return await call_once(f"unix:{home.agent_socket}", method, path, data, timeout_seconds=120)


async def test_missing_walls_are_named(agent: Agent, home: Home) -> None:
    async with served(create_app(agent, ["etc (refused): shared"]), home.agent_socket):
        assert await AgentClient(home.agent_socket).missing_walls() == ["etc (refused): shared"]


async def test_an_instance_comes_and_goes(
    agent: Agent, client: AgentClient, make_spec: MakeSpec
) -> None:
    await client.check_health()
    await client.put_instance(make_spec())
    report = await wait_for(client, InstanceState.IN_SERVICE)
    assert report is not None
    assert report.address is not None
    assert agent.container_address("i-1", 0) == report.address
    for name, number in (("i-1", 1), ("i-1", -1), ("i-2", 0)):
        with pytest.raises(NotFound):
            agent.container_address(name, number)
    before = await client.instances()
    await client.keep_warm(["python"])  # without fork servers, nothing comes of it
    await client.put_instance(make_spec())
    assert await client.instances() == before, "an equal spec changes nothing"
    samples = await client.metrics()
    assert {sample.name for sample in samples} == {
        "InstanceMemoryBytes",
        "InstanceLimitHits",
        "ContainerStarts",
        "CPUUtilization",
        "MemoryUtilization",
        "DiskUtilization",
    }
    await client.delete_instance("i-1")
    await wait_for(client, None)
    await client.delete_instance("i-1")
    with pytest.raises(NotFound):
        agent.container_address("i-1", 0)


async def test_an_instance_of_a_transform_job_is_measured_and_logged_as_one(
    client: AgentClient, make_spec: MakeSpec, home: Home
) -> None:
    spec = msgspec.structs.replace(make_spec(), owner=InstanceOwner.TRANSFORM_JOB)
    await client.put_instance(spec)
    report = await wait_for(client, InstanceState.IN_SERVICE)
    assert report is not None
    assert report.owner is InstanceOwner.TRANSFORM_JOB
    assert await client.metrics() == []
    samples = await client.job_samples()
    assert {"CPUUtilization", "MemoryUtilization"} <= {sample.name for sample in samples}
    assert {(sample.job, sample.host, sample.transform) for sample in samples} == {
        ("houses", "i-1", True)
    }
    assert (home.transform_log("houses") / "i-1.log").exists()
    assert not (home.logs / "endpoints").exists()


async def test_another_spec_takes_the_place_of_the_first(
    client: AgentClient, make_spec: MakeSpec, short_path: Path
) -> None:
    await client.put_instance(make_spec())
    await wait_for(client, InstanceState.IN_SERVICE)
    await client.put_instance(make_spec(environment={"MINE": "1"}))
    await wait_for(client, InstanceState.STARTING)
    await wait_for(client, InstanceState.IN_SERVICE)
    assert (short_path / "started").read_text() == "xx"


async def test_a_failed_instance_is_tried_anew_when_it_is_put_again(
    client: AgentClient, make_spec: MakeSpec, put_object: Put, make_archive: Callable[..., bytes]
) -> None:
    spec = make_spec(model_data_url="s3://bucket/model.tar.gz")
    await client.put_instance(spec)
    report = await wait_for(client, InstanceState.FAILED)
    assert report is not None
    assert "s3://bucket/model.tar.gz" in (report.failure_reason or "")
    put_object("model.tar.gz", make_archive(("model", b"x")))
    await client.put_instance(spec)
    await wait_for(client, InstanceState.IN_SERVICE)


async def test_waiting_for_a_change_ends_with_the_time_given(client: AgentClient) -> None:
    listed = await client.instances()
    assert await client.instances(since=listed.version, wait_seconds=0.01) == listed
    assert await client.instances(since=0, wait_seconds=60) == listed


async def test_models_are_loaded_on_demand(
    client: AgentClient,
    home: Home,
    make_spec: MakeSpec,
    put_object: Put,
    make_archive: Callable[..., bytes],
) -> None:
    put_object("models/Houston_TX.tar.gz", make_archive(("model", b"x")))
    await client.put_instance(make_spec(**MODELS))
    await wait_for(client, InstanceState.IN_SERVICE)
    first = await client.load_model("i-1", "Houston_TX.tar.gz")
    again = await client.load_model("i-1", "Houston_TX.tar.gz")
    assert (first.hit, again.hit) == (False, True)
    assert first.model_name == again.model_name
    touched = TouchRequest(model_names=(first.model_name, "unheard-of"))
    assert (await ask(home, "POST", "/instances/i-1/models/touch", touched)).status == 204
    values = {sample.name: sample.value for sample in await client.metrics()}
    assert values["LoadedModelCount"] == 1
    assert values["ModelLoadingTimeCount"] == values["ModelDownloadingTimeCount"] == 1
    assert values["ModelLoadingWaitTimeSum"] > 0


async def test_a_restarted_container_begins_without_models(
    client: AgentClient, make_spec: MakeSpec, put_object: Put, make_archive: Callable[..., bytes]
) -> None:
    put_object("models/a", make_archive(("model", b"x")))
    await client.put_instance(make_spec(**MODELS))
    report = await wait_for(client, InstanceState.IN_SERVICE)
    assert (await client.load_model("i-1", "a")).hit is False
    assert report is not None
    with pytest.raises(Unavailable):
        await call_once(str(report.address), "POST", "/crash", timeout_seconds=60)
    await wait_for(client, InstanceState.STARTING)
    await wait_for(client, InstanceState.IN_SERVICE)
    assert (await client.load_model("i-1", "a")).hit is False


async def test_a_model_without_room_is_507_and_a_refused_one_424_with_its_text(
    client: AgentClient,
    home: Home,
    make_spec: MakeSpec,
    put_object: Put,
    make_archive: Callable[..., bytes],
) -> None:
    put_object("models/big", make_archive(("model", bytes(200_000))))
    put_object("models/odd", make_archive(("refuse", b"x")))
    environment = {"SAGEHEN_MODEL_CACHE_BYTES": "100000"}
    await client.put_instance(make_spec(**MODELS, environment=environment))
    await wait_for(client, InstanceState.IN_SERVICE)
    big = await ask(home, "POST", "/instances/i-1/models", {"target_model": "big"})
    odd = await ask(home, "POST", "/instances/i-1/models", {"target_model": "odd"})
    assert (big.status, odd.status) == (507, 424)
    assert "no such tree" in odd.text


async def test_a_slow_model_is_429_at_first_and_there_later(
    client: AgentClient,
    home: Home,
    make_spec: MakeSpec,
    put_object: Put,
    make_archive: Callable[..., bytes],
    short_path: Path,
) -> None:
    put_object("models/slow", make_archive(("slow", b"")))
    await client.put_instance(make_spec(**MODELS))
    await wait_for(client, InstanceState.IN_SERVICE)
    soon = LoadRequest(target_model="slow", wait_seconds=0)
    answer = await ask(home, "POST", "/instances/i-1/models", soon)
    assert answer.status == 429
    assert msgspec.json.decode(answer.body)["code"] == "ModelNotReadyException"
    (short_path / "go").touch()
    assert isinstance(await client.load_model("i-1", "slow"), LoadedModel)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "1 validation error detected"),
        ("../secret", "1 validation error detected"),
        ("missing.tar.gz", "s3://bucket/models/missing.tar.gz"),
        ("bad.tar.gz", "Failed to extract model data archive"),
    ],
)
async def test_bad_targets_are_invalid(
    client: AgentClient, make_spec: MakeSpec, put_object: Put, target: str, message: str
) -> None:
    put_object("models/bad.tar.gz", b"not an archive")
    await client.put_instance(make_spec(**MODELS))
    await wait_for(client, InstanceState.IN_SERVICE)
    with pytest.raises(Invalid, match=message):
        await client.load_model("i-1", target)


async def test_models_of_other_instances_are_refused(
    client: AgentClient, make_spec: MakeSpec
) -> None:
    with pytest.raises(NotFound, match="i-1"):
        await client.load_model("i-1", "a")
    await client.put_instance(make_spec())
    with pytest.raises(Invalid, match="multi-model"):
        await client.load_model("i-1", "a")
    await client.put_instance(make_spec("i-2", **MODELS, environment={"FAKE_UNHEALTHY": "1"}))
    with pytest.raises(Unavailable, match="not in service"):
        await client.load_model("i-2", "a")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/instances/i-1", b"{"),
        ("PUT", "/instances/i-1", b"{}"),
        ("PUT", "/instances/i-1", bytes(2**20 + 1)),
        ("GET", "/instances?since=x", b""),
        ("POST", "/instances/i-1/models", b"[]"),
    ],
)
async def test_malformed_requests_are_400(
    client: AgentClient, home: Home, method: str, path: str, body: bytes
) -> None:
    address = f"unix:{home.agent_socket}"
    answer = await call_once(address, method, path, body, timeout_seconds=60)
    assert answer.status == 400


@pytest.mark.parametrize("changed", ["../../x", "", "a/b", "i" * 64, "a\nb"])
async def test_names_never_become_paths_raw(
    client: AgentClient, make_spec: MakeSpec, changed: str
) -> None:
    with pytest.raises(Invalid):
        await client.put_instance(msgspec.structs.replace(make_spec(), variant_name=changed))
    with pytest.raises(Invalid):
        await client.put_instance(make_spec(hostname=changed))


async def test_an_agent_that_is_away_is_unavailable(home: Home) -> None:
    with pytest.raises(Unavailable):
        await AgentClient(home.agent_socket).instances()


async def test_a_new_agent_finds_no_instances_and_another_version(
    settings: Settings, home: Home, objects: ObjectStore, make_spec: MakeSpec
) -> None:
    first = Agent(settings, home, objects, SYSTEM)
    await first.start()
    await first.put(make_spec())
    seen = first.list_instances()
    await first.stop()
    second = Agent(settings, home, objects, SYSTEM)
    await second.start()
    assert second.list_instances().instances == ()
    assert second.list_instances().version != seen.version
    assert list(home.instances.iterdir()) == []
