"""A mail server, in a thread of the test."""

import asyncio
import email
import socket
from collections.abc import Coroutine
from email.message import Message
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

__all__ = ["MailController", "Mailbox"]


class MailController(Controller):
    """Listens on a port that is free, which it has from its start on."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler, hostname="127.0.0.1", port=0, ready_timeout=60)
        self._sessions: list[SMTP] = []

    def factory(self) -> SMTP:
        session = super().factory()
        self._sessions.append(session)
        return session

    def stop(self, no_assert: bool = False) -> None:
        # Else the transport of a client that is still there is left to the garbage collector.
        asyncio.run_coroutine_threadsafe(self._end_sessions(), self.loop).result(60)
        super().stop(no_assert)

    async def _end_sessions(self) -> None:
        for session in self._sessions:
            if session.transport is not None:
                cast("asyncio.WriteTransport", session.transport).abort()
        # The loop tells them in its next turn.
        await asyncio.sleep(0)

    def _create_server(self) -> Coroutine[Any, Any, Any]:
        listener = socket.create_server((self.hostname, 0))
        self.port = listener.getsockname()[1]
        made: Coroutine[Any, Any, Any] = self.loop.create_server(
            self._factory_invoker, sock=listener
        )
        return made


class Mailbox:
    """A mail server that keeps what it is given, unless it is told to refuse."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refusals: list[str] = []
        self._controller = MailController(self)

    @property
    def port(self) -> int:
        """Once it has started."""
        return self._controller.port

    def start(self) -> None:
        self._controller.start()

    def stop(self) -> None:
        self._controller.stop()

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refusals:
            return self.refusals.pop(0)
        assert isinstance(envelope.content, bytes)
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"

    def to(self, address: str) -> list[Message]:
        return [mail for mail in list(self.mails) if mail["To"] == address]
