"""What a start finds out before the roles have it."""

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from sagehen.app import server
from sagehen.app.server import choose_partition
from sagehen.app.supervisor import Role, Supervisor
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home, lock_id, prepare_home
from sagehen.base.settings import Settings
from sagehen.frame import tags
from sagehen.services.messaging.events import rule_store as event_rules
from sagehen.services.messaging.events.records import ENABLED, RuleRecord
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.records import TopicRecord
from sagehen.state.database import Database
from support.clock import HandClock
from support.state import settings_of

CHINA = "cn-north-1:000000000000"


def topic(connection: Connection, partition: str) -> None:
    arn = f"arn:{partition}:sns:{CHINA}:t"
    topics.insert(connection, TopicRecord(arn=arn, created_at=1.0, attributes={}))


def rule(connection: Connection, partition: str) -> None:
    arn = f"arn:{partition}:events:{CHINA}:rule/r"
    event_rules.put(
        connection,
        RuleRecord(name="r", arn=arn, state=ENABLED, event_pattern="{}", created_at=1.0),
    )


def tag(connection: Connection, partition: str) -> None:
    tags.put(connection, f"arn:{partition}:sqs:{CHINA}:q", {"k": "v"})


@pytest.mark.parametrize("make", [topic, rule, tag])
@pytest.mark.parametrize("partition", ["aws", "aws-cn"])
def test_a_home_keeps_the_partition_of_its_arns(
    database: Database,
    tmp_path: Path,
    make: Callable[[Connection, str], None],
    partition: str,
) -> None:
    def chosen(**settings: Any) -> str:
        return choose_partition(settings_of(tmp_path, **settings))

    assert chosen(region="cn-north-1") == "aws-cn"
    with database.write() as connection:
        make(connection, partition)
    assert chosen(region="cn-north-1") == partition
    assert chosen(region="cn-northwest-1") == "aws-cn", "of another region"
    assert chosen(region="us-gov-west-1") == "aws-us-gov"
    assert chosen(region="us-east-1") == "aws"
    assert chosen(region="cn-north-1", partition="aws-iso") == "aws-iso"


async def test_a_start_begins_without_the_routes_of_the_server_before(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instances are gone, and the endpoints may be another server's by now."""
    home = prepare_home(short_path / "home")
    home.routes.write_bytes(b"{}")

    async def start(_: Supervisor) -> None:
        raise Unavailable(f"routes: {home.routes.exists()}")

    monkeypatch.setattr(Supervisor, "start", start)
    with pytest.raises(Unavailable, match="routes: False"):
        async with server.running_server(settings_of(home.path, port=0)):
            pass


async def test_a_disk_that_does_not_answer_is_no_deleted_home(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would stop itself, though the disk may answer again."""
    home, clock = prepare_home(short_path / "home"), HandClock()
    home.lock.touch()
    ours = lock_id(home)
    answers = iter([ours, ours, OSError(errno.EIO, "Input/output error"), ours, None])

    def look(_: Home) -> tuple[int, int] | None:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(server, "lock_id", look)
    await server.home_vanished(home, clock)
    assert next(answers, "all were asked for") == "all were asked for"


@pytest.fixture
def nobody() -> str:
    """The address of a port at which nobody listens while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


async def test_a_start_that_takes_long_says_so_every_five_seconds(short_path: Path, nobody: str):
    home, clock, said = prepare_home(short_path / "home"), HandClock(), []
    supervisor = Supervisor([Role("agent")], Settings(home=home.path), {}, clock)

    with pytest.raises(Unavailable, match="within 60 s"):
        await server._wait_until_ready(nobody, supervisor, home, clock, said.append)

    assert len(said) == 11
    assert said[0].startswith("Still waiting for the server's processes to answer, after 5 s of")
    assert str(home.logs) in said[0]
