"""What control makes of the agent's answers, without an agent."""

from pathlib import Path

import msgspec
import pytest

from sagehen.agent import client as module
from sagehen.agent.client import AgentClient
from sagehen.agent.messages import ErrorMessage, InstanceList, LoadedModel
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.http1.call import LocalAnswer


class FakeAgent:
    """Answers each request with `answer`, and notes it."""

    def __init__(self) -> None:
        self.answer = LocalAnswer(200, b"")
        self.requests: list[tuple[str, str, float]] = []

    async def exchange(
        self, address: str, method: str, path: str, body: bytes = b"", *, timeout_seconds: float
    ) -> LocalAnswer:
        assert address == "unix:/run/agent.sock"
        self.requests.append((method, path, timeout_seconds))
        return self.answer


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    agent = FakeAgent()
    monkeypatch.setattr(module, "call_once", agent.exchange)
    return agent


@pytest.fixture
def client() -> AgentClient:
    return AgentClient(Path("/run/agent.sock"))


@pytest.mark.parametrize(
    ("status", "error"), [(400, Invalid), (404, NotFound), (503, Unavailable), (418, Unavailable)]
)
async def test_a_status_is_an_error_with_the_agents_message(
    agent: FakeAgent, client: AgentClient, status: int, error: type[Exception]
) -> None:
    message = msgspec.json.encode(ErrorMessage(code="Code", message="what is wrong"))
    agent.answer = LocalAnswer(status, message)
    with pytest.raises(error, match="what is wrong"):
        await client.check_health()
    agent.answer = LocalAnswer(status, b"plain text")
    with pytest.raises(error, match="plain text"):
        await client.check_health()
    agent.answer = LocalAnswer(status, b"")
    with pytest.raises(error, match=f"HTTP {status}"):
        await client.check_health()


async def test_what_is_gone_is_deleted(agent: FakeAgent, client: AgentClient) -> None:
    agent.answer = LocalAnswer(404, b"")
    await client.delete_instance("i/1")
    await client.delete_job("j-1")
    assert [(method, path) for method, path, _ in agent.requests] == [
        ("DELETE", "/instances/i%2F1"),
        ("DELETE", "/jobs/j-1"),
    ]


async def test_a_long_poll_extends_the_timeout(agent: FakeAgent, client: AgentClient) -> None:
    listed = InstanceList(version=7, instances=())
    agent.answer = LocalAnswer(200, msgspec.json.encode(listed))
    assert await client.instances() == listed
    assert await client.instances(since=6, wait_seconds=30) == listed
    assert agent.requests == [
        ("GET", "/instances", module.TIMEOUT_SECONDS),
        ("GET", "/instances?since=6&wait_seconds=30", module.TIMEOUT_SECONDS + 30),
    ]


async def test_an_answer_of_another_form_is_unavailable(
    agent: FakeAgent, client: AgentClient
) -> None:
    agent.answer = LocalAnswer(200, b'{"version": "seven"}')
    with pytest.raises(Unavailable, match="response is not valid"):
        await client.instances()


async def test_a_loaded_model(agent: FakeAgent, client: AgentClient) -> None:
    model = LoadedModel(model_name="abc", hit=True, wait_microseconds=0)
    agent.answer = LocalAnswer(200, msgspec.json.encode(model))
    assert await client.load_model("i-1", "a.tar.gz") == model
