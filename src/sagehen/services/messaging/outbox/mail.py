"""Sends deliveries by e-mail."""

import asyncio
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, formatdate, parseaddr

from sagehen.base.clock import Clock
from sagehen.base.settings import Settings
from sagehen.services.messaging.outbox.destinations import DeliveryResult, Mail, ReceiverAnswer

__all__ = ["MailSender"]

_PERMANENT = 500
"""SMTP codes from here on are final if about the mail; refused logins are retried, as the owner can
fix them"""


class MailSender:
    """Opens a connection per mail."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def send(self, mail: Mail) -> ReceiverAnswer:
        settings = self._settings
        if settings.smtp_host is None:
            return ReceiverAnswer(
                DeliveryResult.FAILED, "the setting smtp_host names no mail server"
            )
        import aiosmtplib  # few servers send mails

        # Off the event loop: encoding a long text takes a while.
        message = await asyncio.to_thread(self._message, mail)
        try:
            async with asyncio.timeout(settings.delivery_timeout_seconds):
                await self._hand_over(message)
        except TimeoutError:
            return ReceiverAnswer(DeliveryResult.FAILED, "the mail server did not answer in time")
        except aiosmtplib.SMTPRecipientsRefused as error:
            return _answer(max(refusal.code for refusal in error.recipients), error)
        except (aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPDataError) as error:
            return _answer(error.code, error)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return ReceiverAnswer(DeliveryResult.FAILED, f"{type(error).__name__}: {error}"[:512])
        return ReceiverAnswer(DeliveryResult.ACCEPTED)

    async def _hand_over(self, message: EmailMessage) -> None:
        import aiosmtplib

        settings = self._settings
        password = settings.smtp_password
        await aiosmtplib.send(
            message,
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_username,
            password=None if password is None else password.get_secret_value(),
            use_tls=settings.smtp_security == "tls",
            start_tls=settings.smtp_security == "starttls",
            timeout=settings.delivery_timeout_seconds,
        )

    def _sender(self, name: str) -> str:
        sender = self._settings.mail_sender
        return formataddr((name, parseaddr(sender)[1])) if name and name.isprintable() else sender

    def _message(self, mail: Mail) -> EmailMessage:
        message = EmailMessage(policy=SMTP)
        message["From"] = self._sender(mail.sender_name)
        message["To"] = mail.recipient
        message["Date"] = formatdate(self._clock.now())
        domain = self._settings.mail_sender.rpartition("@")[2] or "localhost"
        message["Message-ID"] = f"<{mail.message_id}@{domain}>"
        message["Subject"] = mail.subject
        message.set_content(mail.text)
        return message


def _answer(code: int, error: Exception) -> ReceiverAnswer:
    result = DeliveryResult.REFUSED if code >= _PERMANENT else DeliveryResult.FAILED
    return ReceiverAnswer(result, f"{error}"[:512])
