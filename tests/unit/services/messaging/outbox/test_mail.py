"""Mail to a real mail server: what it says decides whether it is tried again."""

import email
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from sagehen.base.settings import Settings
from sagehen.services.messaging.outbox.destinations import DeliveryResult, Mail, ReceiverAnswer
from sagehen.services.messaging.outbox.mail import MailSender
from support.clock import HandClock
from support.mailbox import MailController


class Server:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.on_recipient = self.on_data = "250 OK"
        self.contents: list[bytes] = []
        self.port = 0

    async def handle_RCPT(  # noqa: N802
        self, _: SMTP, __: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        if self.on_recipient.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.on_recipient

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        self.contents.append(envelope.content)
        return self.on_data


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    controller = MailController(server)
    controller.start()
    server.port = controller.port
    yield server
    controller.stop()


@pytest.fixture
def server(running: Server) -> Server:
    running.on_recipient = running.on_data = "250 OK"
    running.contents.clear()
    return running


async def send(tmp_path: Path, port: int | None, text: str = "m", **more: Any) -> ReceiverAnswer:
    chosen: dict[str, Any] = {"smtp_host": "127.0.0.1", "smtp_port": port} if port else {}
    settings = Settings(home=tmp_path, **{**chosen, **more})
    mail = Mail(recipient="reader@example.org", subject="s", text=text, message_id="id.7")
    return await MailSender(settings, HandClock(86_400)).send(mail)


async def test_accepted(server: Server, tmp_path: Path) -> None:
    answer = await send(tmp_path, server.port, "line\n.\nafter the dot ü")
    assert answer.result is DeliveryResult.ACCEPTED
    mail = email.message_from_bytes(server.contents[0])
    assert mail["Message-ID"] == "<id.7@localhost>"
    assert mail["Date"] == "Fri, 02 Jan 1970 00:00:00 -0000"
    payload = mail.get_payload(decode=True)
    assert isinstance(payload, bytes)
    text = payload.decode().replace("\r\n", "\n")
    assert text.rstrip("\n") == "line\n.\nafter the dot ü"
    assert (mail["To"], mail["Subject"]) == ("reader@example.org", "s")


@pytest.mark.parametrize(
    ("on_recipient", "on_data", "result"),
    [
        ("550 No such user", "250 OK", DeliveryResult.REFUSED),
        ("450 Mailbox busy", "250 OK", DeliveryResult.FAILED),
        ("250 OK", "554 Spam", DeliveryResult.REFUSED),
        ("250 OK", "451 Later", DeliveryResult.FAILED),
        ("250 OK", "421 Closing", DeliveryResult.FAILED),
    ],
)
async def test_what_the_server_says(
    server: Server, tmp_path: Path, on_recipient: str, on_data: str, result: DeliveryResult
) -> None:
    server.on_recipient, server.on_data = on_recipient, on_data
    answer = await send(tmp_path, server.port)
    assert answer.result is result
    assert answer.reason


async def test_the_owner_s_own_mistakes_lose_nothing(server: Server, tmp_path: Path) -> None:
    assert (await send(tmp_path, None)).result is DeliveryResult.FAILED
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert (await send(tmp_path, port)).result is DeliveryResult.FAILED
    logged_in = {"smtp_username": "u", "smtp_password": "p"}
    assert (await send(tmp_path, server.port, **logged_in)).result is DeliveryResult.FAILED
    encrypted = {"smtp_security": "starttls"}
    assert (await send(tmp_path, server.port, **encrypted)).result is DeliveryResult.FAILED


async def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        answer = await send(tmp_path, port, delivery_timeout_seconds=0.2)
    assert answer.result is DeliveryResult.FAILED
