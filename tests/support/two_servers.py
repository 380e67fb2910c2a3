"""Two servers on one state in PostgreSQL and one S3, of which one leads."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError

from sagehen.state import leader_row
from sagehen.state.database import Database
from support.server import Server, eventually

__all__ = ["FAULTS", "TwoServers", "answered"]

STOPPED_SECONDS = 10
"""for which a leader's control is stopped: it has long lost its lease when it goes on"""
FAULTS = ("kill control", "stop control", "kill server", "end server")


@dataclass
class TwoServers:
    """Clients of either; faults of the one that leads."""

    servers: list[Server]
    database: Database
    """the state, to look at"""
    took: dict[str, list[float]] = field(default_factory=dict)
    """seconds until another control, or the same one anew, led, by fault"""

    def __post_init__(self) -> None:
        self._turns = itertools.count()

    @property
    def url(self) -> str:
        return self._up().url

    @property
    def bearer(self) -> dict[str, str]:
        return self._up().bearer

    def _up(self) -> Server:
        """One of them, in turn; never one that is down for long."""
        servers = [one for one in self.servers if (one.home / "run" / "address").exists()]
        return servers[next(self._turns) % len(servers)]

    def client(self, service: str, **config: Any) -> "_EitherClient":
        return _EitherClient(self, service, config)

    def look(self) -> leader_row.Look:
        with self.database.read() as connection:
            look = leader_row.look_at(connection)
        assert look is not None
        return look

    def leader(self) -> Server:
        """The one whose control leads, once there is one."""
        found: list[Server] = []

        def is_found() -> bool:
            holder = self.look().holder
            found[:] = [one for one in self.servers if holder.endswith(f":{one.home}")]
            return bool(found)

        eventually(is_found)
        return found[0]

    def strike(self, fault: str) -> None:
        """Makes the fault, and waits until there is a leader of a later epoch and both are up."""
        victim, before = self.leader(), self.look().epoch
        began = time.monotonic()
        if fault == "kill control":
            _signal(victim, signal.SIGKILL)
        elif fault == "kill server":
            victim.kill()
            (victim.home / "run" / "address").unlink(missing_ok=True)
        elif fault == "end server":
            victim.stop()
            began = time.monotonic()  # It leads until all that it has begun has ended.
        else:
            _signal(victim, signal.SIGSTOP)
        self._await_epoch(before)
        self.took.setdefault(fault, []).append(time.monotonic() - began)
        if fault == "stop control":
            eventually(lambda: time.monotonic() - began >= STOPPED_SECONDS)
            _signal(victim, signal.SIGCONT)
        elif fault != "kill control":
            victim.start()

    def _await_epoch(self, before: int) -> None:
        def is_later() -> bool:
            with contextlib.suppress(SQLAlchemyError):
                look = self.look()
                return look.epoch > before and look.seconds > 0
            return False

        eventually(is_later)


def _signal(server: Server, number: signal.Signals) -> None:
    """To the server's control, which may just be starting."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid("control"), number)


class _EitherClient:
    """boto3's clients of both servers, whose calls go to one of them in turn, and are not
    repeated."""

    def __init__(self, servers: TwoServers, service: str, config: dict[str, Any]) -> None:
        self._servers = servers
        self._make = lambda server: server.client(service, **config)
        self._clients: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **params: Any) -> Any:
            url = self._servers.url
            if url not in self._clients:
                server = next(one for one in self._servers.servers if url.endswith(f":{one.port}"))
                self._clients[url] = self._make(server)
            return getattr(self._clients[url], name)(*args, **params)

        return call


def answered(call: Callable[[], Any]) -> Any:
    """What a call that changes nothing answers, as soon as somebody does."""
    found: list[Any] = []

    def is_answered() -> bool:
        with contextlib.suppress(ClientError, BotoCoreError):
            found.append(call())
        return bool(found)

    eventually(is_answered)
    return found[0]
