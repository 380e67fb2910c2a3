"""Carries notifications between the controls that share a state in PostgreSQL.

They are hints, by LISTEN and NOTIFY: a lost one costs a second, as `Leadership` looks for commits
that often. They are not sent with the writes that they tell of: commits with a notification wait
for one another, all over the server.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake, first_of, in_thread
from sagehen.base.retry import AWAY, Backoff
from sagehen.state.database import Database

__all__ = ["RemoteHints"]

log = logging.getLogger(__name__)

_CHANNEL = "sagehen"
_SEND = text(f"SELECT pg_notify('{_CHANNEL}', :message)")
GATHER_SECONDS = 0.02
"""between sends"""
MAX_HINTS = 1000
"""waiting to be sent; more are dropped"""
MAX_MESSAGE_HINTS = 20
"""a message of PostgreSQL has less than 8000 bytes"""
MAX_PAYLOAD = 300
"""characters; longer ones are not sent"""
PROOF_SECONDS = 60.0
"""between messages to itself: a connection may be dead, or a pool between may swallow LISTEN"""
DEAF_SECONDS = 5.0
"""after which a listener that does not hear itself is deaf"""
FIRST_ERROR_SECONDS = 0.5
LONGEST_ERROR_SECONDS = 30.0

_Hint = tuple[str, str]
"""channel and payload"""


class _Message(msgspec.Struct, frozen=True):
    sender: str
    hints: tuple[_Hint, ...]


class RemoteHints:
    """Sends this control's notifications to the others, and theirs to its listeners.

    Args:
        is_wanted: whether another control has use for a notification of this channel.
    """

    def __init__(self, database: Database, clock: Clock, is_wanted: Callable[[str], bool]) -> None:
        self._database = database
        self._clock = clock
        self._is_wanted = is_wanted
        self._name = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._pending: dict[_Hint, None] = {}
        self._wake = Wake()
        self._heard = asyncio.Event()
        """set while this control hears itself, so also the others"""
        self._has_proof = False
        if database.is_shared:
            database.forward = self.send

    @property
    def is_heard(self) -> bool:
        """Whether notifications arrive; else the others' commits are seen within a second."""
        return self._heard.is_set()

    def send(self, channel: str, payload: str = "") -> None:
        """Safe from any thread."""
        if len(payload) > MAX_PAYLOAD or not self._is_wanted(channel):
            return
        with self._lock:
            if len(self._pending) < MAX_HINTS:
                self._pending[channel, payload] = None
        self._wake.hint()

    async def run(self) -> None:
        """Runs until cancelled; then sends what waits."""
        if not self._database.is_shared:
            return
        self._wake.begin()
        listening = asyncio.create_task(self._listen_always())
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._send_pending()
                await self._clock.sleep(GATHER_SECONDS)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await self._send_pending()

    async def _send_pending(self) -> None:
        with self._lock:
            hints, self._pending = tuple(self._pending), {}
        for start in range(0, len(hints), MAX_MESSAGE_HINTS):
            with contextlib.suppress(*AWAY):
                await self._send(hints[start : start + MAX_MESSAGE_HINTS])

    async def _send(self, hints: tuple[_Hint, ...]) -> None:
        message = msgspec.json.encode(_Message(self._name, hints)).decode()
        await in_thread(lambda: self._execute(message))

    def _execute(self, message: str) -> None:
        with self._database.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(_SEND, {"message": message})

    async def _listen_always(self) -> None:
        backoff = Backoff(FIRST_ERROR_SECONDS, LONGEST_ERROR_SECONDS)
        while True:
            try:
                await self._listen(backoff)
            except AWAY as error:
                extra = {"action": "listen"}
                log.warning("Notifications of other controls do not arrive: %s", error, extra=extra)
            self._heard.clear()
            await self._clock.sleep(backoff.next_seconds())

    async def _listen(self, backoff: Backoff) -> None:
        """Returns when the connection ends, or does not deliver."""
        connection = await in_thread(self._connect)
        arrived = Wake()
        loop = asyncio.get_running_loop()
        driver: Any = connection.connection.driver_connection
        descriptor = driver.fileno()
        loop.add_reader(descriptor, arrived.set)
        try:
            while await self._hears_itself(driver, arrived):
                backoff.reset()
                await self._receive_for(PROOF_SECONDS, driver, arrived)
        finally:
            loop.remove_reader(descriptor)
            await in_thread(lambda: _end(connection))

    async def _hears_itself(self, driver: Any, arrived: Wake) -> bool:
        self._has_proof = False
        await self._send(())
        deadline = self._clock.monotonic() + DEAF_SECONDS
        while not self._has_proof and self._clock.monotonic() < deadline:
            await self._receive_for(deadline - self._clock.monotonic(), driver, arrived, once=True)
        return self._has_proof

    async def _receive_for(
        self, seconds: float, driver: Any, arrived: Wake, once: bool = False
    ) -> None:
        until = self._clock.monotonic() + seconds
        while (rest := until - self._clock.monotonic()) > 0:
            await first_of(arrived.wait(), self._clock.sleep(rest))
            arrived.clear()
            self._receive(driver)
            if once:
                return

    def _connect(self) -> Connection:
        connection = self._database.connect_apart()
        connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
        return connection

    def _receive(self, driver: Any) -> None:
        """Does not block: reads what has arrived. Raises OSError when the connection has ended."""
        try:
            driver.pgconn.consume_input()
        except Exception as error:  # of the driver, which only `Database` imports
            raise ConnectionError(str(error)) from error
        while (notification := driver.pgconn.notifies()) is not None:
            try:
                message = msgspec.json.decode(notification.extra, type=_Message)
            except msgspec.MsgspecError:
                continue  # of a newer version, perhaps
            self._has_proof = True
            self._heard.set()
            if message.sender != self._name:
                for channel, payload in message.hints:
                    self._database.tell(channel, payload)


def _end(connection: Connection) -> None:
    with contextlib.suppress(SQLAlchemyError):
        connection.invalidate()
    with contextlib.suppress(SQLAlchemyError):
        connection.close()
