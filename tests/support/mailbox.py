"""A mail server, in a thread of the test."""

import email
import socket
from email.message import Message

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

__all__ = ["Mailbox"]


class Mailbox:
    """A mail server that keeps what it is given, unless it is told to refuse."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refusals: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)

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
