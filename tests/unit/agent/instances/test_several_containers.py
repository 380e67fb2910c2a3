"""Instances of several containers: they live and die together."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from sagehen.agent.instances.instance import Instance
from sagehen.agent.node import Node
from sagehen.base.errors import Invalid, NotFound
from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.http1.call import call_once

URL = "s3://bucket/model.tar.gz"
MANY = "s3://bucket/many/"


@pytest.fixture
def spec(make_spec: Callable[..., InstanceSpec], home: Any) -> Callable[..., InstanceSpec]:
    """`spec(first, second)`: the members of the containers `clean` and `predict`."""

    def make(*containers: dict[str, Any]) -> InstanceSpec:
        one = make_spec()
        control = one.containers[0].environment
        return replace(
            one,
            containers=tuple(
                ContainerSpec(
                    hostname=hostname,
                    image="fake",
                    environment=control | given.pop("environment", {}),
                    **given,
                )
                for hostname, given in zip(("clean", "predict"), containers, strict=True)
            ),
        )

    return make


@asynccontextmanager
async def running(spec: InstanceSpec, node: Node) -> AsyncIterator[Instance]:
    instance = Instance(spec, node, lambda: None)
    instance.start()
    try:
        yield instance
    finally:
        await instance.stop()


async def reaches(instance: Instance, state: InstanceState) -> None:
    async with asyncio.timeout(120):
        while instance.report.state is not state:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def processes(node: Node) -> dict[str, psutil.Process]:
    """By hostname."""
    found = {}
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It has just ended.
            home = one.environ().get("HOME", "")
            if home.startswith(str(node.home.path)):
                found[Path(home).name] = one
    return found


async def test_each_has_an_address_a_folder_and_a_log(
    node: Node, spec: Any, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model.json", b"{}"))
    slots = {"environment": {"FAKE_SLOTS": "3"}}
    async with running(spec({"model_data_url": URL}, slots), node) as instance:
        await reaches(instance, InstanceState.IN_SERVICE)
        report = instance.report
        first, second = report.containers
        assert (first.slots, second.slots) == (None, 3)
        assert report.address == first.address != second.address
        for one in (first, second):
            assert (await call_once(one.address, "GET", "/ping", timeout_seconds=60)).status == 200
        folder = node.home.instances / "i-1"
        assert (folder / "clean" / "ml" / "model" / "model.json").is_file()
        assert list((folder / "predict" / "ml" / "model").iterdir()) == []
        logs = node.home.logs / "endpoints" / "houses" / "AllTraffic" / "i-1"
        assert {path.name for path in logs.glob("*.log")} == {"clean.log", "predict.log"}
    assert list(node.home.instances.iterdir()) == []


async def test_when_one_dies_all_are_started_again(node: Node, spec: Any) -> None:
    async with running(spec({}, {}), node) as instance:
        await reaches(instance, InstanceState.IN_SERVICE)
        before, run_id = processes(node), instance.report.run_id
        before["predict"].kill()
        await reaches(instance, InstanceState.STARTING)
        await reaches(instance, InstanceState.IN_SERVICE)
        after = processes(node)
        assert {one.pid for one in before.values()}.isdisjoint(one.pid for one in after.values())
        assert after.keys() == {"clean", "predict"}
        assert instance.report.run_id != run_id


async def test_who_does_not_get_healthy_is_named(node: Node, spec: Any) -> None:
    async with running(spec({}, {"environment": {"FAKE_EXIT": "1"}}), node) as instance:
        await reaches(instance, InstanceState.FAILED)
        assert str(instance.report.failure_reason).startswith(
            "The predict container for production variant AllTraffic did not pass the ping health "
        )
    assert processes(node) == {}


async def test_whose_model_data_is_missing_is_numbered(node: Node, spec: Any) -> None:
    async with running(spec({}, {"model_data_url": URL}), node) as instance:
        await reaches(instance, InstanceState.FAILED)
        assert 'model data for container "container_2"' in str(instance.report.failure_reason)


async def test_they_are_ended_one_after_the_other(node: Node, spec: Any) -> None:
    first = {"environment": {"FAKE_LAST_WORK": "1"}}
    async with running(spec(first, {}), node) as instance:
        await reaches(instance, InstanceState.IN_SERVICE)
        found = processes(node)
        stopping = asyncio.create_task(instance.stop())
        control = node.home.path.parent
        async with asyncio.timeout(120):
            while not (control / "finishing").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        second = instance.report.containers[1].address
        assert (await call_once(second, "GET", "/ping", timeout_seconds=60)).status == 200
        (control / "finished").touch()
        await stopping
    assert not any(one.is_running() for one in found.values())


async def test_models_are_loaded_into_the_container_that_is_named(
    node: Node, spec: Any, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[MANY + "a.tar.gz"] = make_archive(("model.json", b"{}"))
    many = {"multi_model": True, "model_data_url": MANY}
    async with running(spec(dict(many), dict(many)), node) as instance:
        await reaches(instance, InstanceState.IN_SERVICE)
        assert not (await instance.load_model("a.tar.gz", 10, "predict")).hit
        assert (await instance.load_model("a.tar.gz", 10, "predict")).hit
        assert not (await instance.load_model("a.tar.gz", 10, "clean")).hit
        instance.touch_models(("m",), {}, "predict")
        told = {one.name: one.value for one in await instance.samples()}
        assert told["LoadedModelCount"] == 2
        with pytest.raises(NotFound, match="no container explain"):
            await instance.load_model("a.tar.gz", 10, "explain")


async def test_without_a_name_it_is_the_only_one_that_holds_models(
    node: Node, spec: Any, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[MANY + "a.tar.gz"] = make_archive(("model.json", b"{}"))
    many = {"multi_model": True, "model_data_url": MANY}
    async with running(spec({}, many), node) as instance:
        await reaches(instance, InstanceState.IN_SERVICE)
        name = (await instance.load_model("a.tar.gz", 10)).model_name
        folder = node.home.instances / "i-1" / "predict" / "ml" / "models" / name / "model"
        assert (folder / "model.json").is_file()
        with pytest.raises(Invalid, match="only for endpoints of multi-model containers"):
            await instance.load_model("a.tar.gz", 10, "clean")
