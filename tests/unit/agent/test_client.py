"""What control makes of the agent's answers, without an agent."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.agent import client as module
from sagehen.agent.changes import ListHistory
from sagehen.agent.client import AgentClient
from sagehen.agent.messages import ErrorMessage, InstanceList, LoadedModel
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.container_specs import InstanceReport, InstanceState
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


class Lists:
    """The agent's own lists, of a release that may not know `changes` yet."""

    def __init__(self, tells_changes: bool) -> None:
        self.tells_changes = tells_changes
        self.version = 1
        self.reports: dict[str, InstanceReport] = {}
        self.told = 0
        self.history = ListHistory()

    async def exchange(
        self, address: str, method: str, path: str, body: bytes = b"", *, timeout_seconds: float
    ) -> LocalAnswer:
        query = dict(parse_qsl(path.partition("?")[2]))
        listed = InstanceList(version=self.version, instances=tuple(self.reports.values()))
        if self.tells_changes:
            since = int(query["since"]) if query.get("changes") == "1" else None
            listed = self.history.answer(since, listed)
        self.told += len(listed.instances)
        return LocalAnswer(200, msgspec.json.encode(listed))

    def change(self, key: str, state: InstanceState | None) -> None:
        self.version += 1
        self.reports.pop(key, None)
        if state is not None:
            self.reports[key] = InstanceReport(instance_id=key, state=state)

    def restart(self) -> None:
        self.version += 100
        self.reports, self.history = {}, ListHistory()


STATES = st.sampled_from([None, *InstanceState])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["i1", "i2", "i3"]), STATES),
        st.sampled_from(["first", "second", "restart"]),
    ),
    max_size=40,
)


@given(tells_changes=st.booleans(), steps=STEPS)
@settings(deadline=None)
def test_changes_of_a_list_make_the_list(tells_changes: bool, steps: list[object]) -> None:
    """For several readers, of which each knows another version."""
    agent, client = Lists(tells_changes), AgentClient(Path("/run/agent.sock"))
    known: dict[object, int | None] = {"first": None, "second": None}

    async def take() -> None:
        for step in [*steps, "first", "second"]:
            if isinstance(step, tuple):
                agent.change(*step)
            elif step == "restart":
                agent.restart()
            else:
                listed = await client.instances(known[step], 5)
                known[step] = listed.version
                assert listed.since is None
                found = {each.instance_id: each for each in listed.instances}
                assert found == agent.reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "call_once", agent.exchange)
        asyncio.run(take())


async def test_one_change_of_many_instances_is_told_alone(monkeypatch, client) -> None:
    agent = Lists(True)
    monkeypatch.setattr(module, "call_once", agent.exchange)
    for number in range(100):
        agent.change(f"i{number}", InstanceState.STARTING)
    first = await client.instances()
    agent.change("i7", InstanceState.IN_SERVICE)
    agent.change("i8", None)
    agent.told = 0
    second = await client.instances(first.version, 5)
    assert (agent.told, len(second.instances)) == (1, 99)
