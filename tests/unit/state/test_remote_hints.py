"""Notifications between two controls that share a state in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from sagehen.base.clock import SYSTEM
from sagehen.base.retry import Backoff
from sagehen.state import remote_hints as module
from sagehen.state.database import Database, notify
from sagehen.state.remote_hints import RemoteHints


class Control:
    """A control's part of it; `told` has what its listeners got."""

    def __init__(self, url: str, is_wanted: Callable[[str], bool] = lambda channel: True) -> None:
        self.database = Database(url, by_control=True)
        self.hints = RemoteHints(self.database, SYSTEM, is_wanted)
        self.told: list[str] = []
        for channel in ("jobs", "messages"):
            self.database.listen(channel, self._note)
        self._told = asyncio.Event()

    def _note(self, payload: str) -> None:
        self.told.append(payload)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Control"]:
        running = asyncio.create_task(self.hints.run())
        await self.until(lambda: self.hints.is_heard)
        try:
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self.database.close()


@pytest.fixture
def url(postgres: Database) -> str:
    return postgres.engine.url.render_as_string(hide_password=False)


async def test_a_commit_is_told_to_the_other_and_once_here(url) -> None:
    async with Control(url).running() as one, Control(url).running() as other:
        with one.database.write() as connection:
            notify(connection, "jobs", "a")
            assert one.told == []
        assert one.told == ["a"]
        await other.until(lambda: other.told == ["a"])
        other.database.announce("messages", "b")
        await one.until(lambda: one.told == ["a", "b"])
        assert other.told == ["a", "b"]


async def test_an_undone_write_tells_nothing(url) -> None:
    async with Control(url).running() as one, Control(url).running() as other:

        def fail() -> None:
            with one.database.write() as connection:
                notify(connection, "jobs", "undone")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        one.database.announce("jobs", "last")
        await other.until(lambda: bool(other.told))
        assert other.told == ["last"]


async def test_what_nobody_wants_is_not_sent(url) -> None:
    leader = Control(url, lambda channel: channel == "messages")
    async with leader.running(), Control(url).running() as other:
        leader.database.announce("jobs", "mine")
        leader.database.announce("messages", "anybody's")
        await other.until(lambda: bool(other.told))
        assert other.told == ["anybody's"]


async def test_many_at_once_are_few_messages(url, monkeypatch) -> None:
    async with Control(url).running() as one, Control(url).running() as other:
        sent = []
        execute = one.hints._execute
        monkeypatch.setattr(one.hints, "_execute", lambda text: (sent.append(text), execute(text)))
        for number in range(module.MAX_HINTS + 10):
            one.hints.send("jobs", "x" * (module.MAX_PAYLOAD - 4) + f"{number:04}")
        one.hints.send("jobs", "x" * (module.MAX_PAYLOAD + 1))
        await other.until(lambda: len(other.told) == module.MAX_HINTS)
        assert len(sent) == module.MAX_HINTS // module.MAX_MESSAGE_HINTS
        assert max(map(len, sent)) < 8000


async def test_a_lost_connection_is_made_again(
    url, postgres: Database, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(module, "FIRST_ERROR_SECONDS", 0.01)
    async with Control(url).running() as one, Control(url).running() as other:
        with postgres.write() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = :name"
                ),
                {"name": other.database.session},
            )
        await other.until(lambda: not other.hints.is_heard)
        await other.until(lambda: other.hints.is_heard)
        one.database.announce("jobs", "again")
        await other.until(lambda: other.told == ["again"])
    assert "do not arrive" in caplog.text


async def test_a_connection_that_swallows_listen_is_known_to_be_deaf(
    url, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAF_SECONDS", 0.05)
    monkeypatch.setattr(module, "_CHANNEL", "sagehen_swallowed")
    control = Control(url)
    async with asyncio.timeout(60):
        await control.hints._listen(Backoff(1, 1))
    assert not control.hints.is_heard
    control.database.close()


async def test_in_sqlite_there_is_nobody_to_tell(database: Database) -> None:
    hints = RemoteHints(database, SYSTEM, lambda channel: True)
    async with asyncio.timeout(60):
        await hints.run()
    database.announce("jobs", "a")
    assert not hints._pending
