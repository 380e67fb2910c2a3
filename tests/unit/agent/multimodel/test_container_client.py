"""SageMaker's multi-model contract, as the agent uses it."""

import pytest

from sagehen.agent.errors import ModelRefused, NoRoom
from sagehen.agent.multimodel import container_client as module
from sagehen.agent.multimodel.container_client import ContainerClient, check_target, opaque_name
from sagehen.base.errors import Invalid
from sagehen.http1.call import LocalAnswer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch):
    def answer_with(status: int, text: str = "") -> ContainerClient:
        async def exchange(*_: object, **__: object) -> LocalAnswer:
            return LocalAnswer(status, text.encode())

        monkeypatch.setattr(module, "call_once", exchange)
        return ContainerClient("tcp:127.0.0.1:8080")

    return answer_with


@pytest.mark.parametrize("status", [200, 409])
async def test_a_model_that_is_loaded_already_is_loaded(answering, status: int) -> None:
    await answering(status).load("a", "/opt/ml/models/a", 1)


@pytest.mark.parametrize(("status", "error"), [(507, NoRoom), (500, ModelRefused)])
async def test_a_refused_load_has_the_containers_text(answering, status: int, error) -> None:
    with pytest.raises(error, match="no more"):
        await answering(status, "no more").load("a", "/opt/ml/models/a", 1)
    with pytest.raises(error, match=f"HTTP {status}"):
        await answering(status).load("a", "/opt/ml/models/a", 1)


async def test_a_model_that_is_gone_is_unloaded(answering) -> None:
    await answering(404).unload("a")
    with pytest.raises(ModelRefused):
        await answering(500).unload("a")


async def test_only_a_404_means_that_a_model_is_not_held(answering) -> None:
    assert await answering(200).holds("a")
    assert await answering(500).holds("a")
    assert not await answering(404).holds("a")


async def test_a_container_without_the_contract(answering) -> None:
    assert await answering(200).is_multi_model()
    assert not await answering(404).is_multi_model()


@pytest.mark.parametrize("target", ["", "/a", "a/", "a/../b", " a", "a\nb", "a" * 1025])
def test_a_target_that_cannot_be_a_key_is_invalid(target: str) -> None:
    with pytest.raises(Invalid, match="at 'targetModel' failed to satisfy constraint: "):
        check_target(target)


def test_names_are_short_stable_and_different() -> None:
    check_target("folder/a model.tar.gz")
    assert opaque_name("a") == opaque_name("a") != opaque_name("b")
    assert len(opaque_name("é" * 1024)) == 32
