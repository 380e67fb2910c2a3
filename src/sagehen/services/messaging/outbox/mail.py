"""Deliveries by e-mail: `email` as text, `email-json` as SNS's JSON."""

import asyncio
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from sagehen.base.clock import Clock
from sagehen.base.settings import Settings
from sagehen.services.messaging.outbox.attempts import (
    DeliveryAttempt,
    DeliveryResult,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.http import envelope_of
from sagehen.services.messaging.sns.envelopes import Envelope, Links
from sagehen.services.messaging.sns.records import PostKind

__all__ = ["MailPost"]

DEFAULT_SUBJECT = "AWS Notification Message"
CONFIRMATION_SUBJECT = "AWS Notification - Subscription Confirmation"
_PERMANENT = 500
"""SMTP codes from here on are final if about the mail; refused logins are retried, as the owner can
fix them"""


class MailPost:
    """Opens a connection per mail."""

    def __init__(
        self, settings: Settings, links: Links, seal: Callable[[Envelope], str], clock: Clock
    ) -> None:
        self._settings = settings
        self._links = links
        self._seal = seal
        self._clock = clock

    async def send(self, parcel: DeliveryAttempt) -> ReceiverAnswer:
        settings = self._settings
        if settings.smtp_host is None:
            return ReceiverAnswer(
                DeliveryResult.FAILED, "the setting smtp_host names no mail server"
            )
        import aiosmtplib  # few servers send mails

        mail = await asyncio.to_thread(self._mail, parcel)
        try:
            async with asyncio.timeout(settings.delivery_timeout_seconds):
                await self._hand_over(mail)
        except TimeoutError:
            return ReceiverAnswer(DeliveryResult.FAILED, "the mail server did not answer in time")
        except aiosmtplib.SMTPRecipientsRefused as error:
            return _answer(max(one.code for one in error.recipients), error)
        except (aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPDataError) as error:
            return _answer(error.code, error)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return ReceiverAnswer(DeliveryResult.FAILED, f"{type(error).__name__}: {error}"[:512])
        return ReceiverAnswer(DeliveryResult.ACCEPTED)

    async def _hand_over(self, mail: EmailMessage) -> None:
        import aiosmtplib

        settings = self._settings
        password = settings.smtp_password
        await aiosmtplib.send(
            mail,
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_username,
            password=None if password is None else password.get_secret_value(),
            use_tls=settings.smtp_security == "tls",
            start_tls=settings.smtp_security == "starttls",
            timeout=settings.delivery_timeout_seconds,
        )

    def _mail(self, parcel: DeliveryAttempt) -> EmailMessage:
        subscription, delivery = parcel.subscription, parcel.delivery
        mail = EmailMessage(policy=SMTP)
        mail["From"] = self._settings.mail_sender
        mail["To"] = subscription.endpoint
        mail["Date"] = formatdate(self._clock.now())
        domain = self._settings.mail_sender.rpartition("@")[2] or "localhost"
        # Same on every attempt, so receivers can detect duplicates.
        mail["Message-ID"] = f"<{delivery.notice.message_id}.{delivery.delivery_id}@{domain}>"
        mail["Subject"] = _subject(parcel)
        if delivery.kind is PostKind.NOTIFICATION and subscription.protocol == "email-json":
            mail.set_content(self._seal(envelope_of(parcel)))
        elif delivery.kind is PostKind.NOTIFICATION:
            mail.set_content(self._text(parcel))
        else:
            mail.set_content(self._confirmation(parcel))
        return mail

    def _text(self, parcel: DeliveryAttempt) -> str:
        message = parcel.delivery.notice.text_for("email")
        link = self._links.unsubscribe(parcel.subscription.arn)
        return (
            f"{message}\n\n--\n"
            "If you wish to stop receiving notifications from this topic, please click or visit "
            f"the link below to unsubscribe:\n{link}\n\nPlease do not reply directly to this email."
        )

    def _confirmation(self, parcel: DeliveryAttempt) -> str:
        subscription = parcel.subscription
        link = self._links.subscribe(subscription.topic_arn, subscription.token)
        return (
            f"You have chosen to subscribe to the topic:\n{subscription.topic_arn}\n\n"
            "To confirm this subscription, click or visit the link below (If this was in error no "
            f"action is necessary):\n{link}\n\nPlease do not reply directly to this email."
        )


def _subject(parcel: DeliveryAttempt) -> str:
    if parcel.delivery.kind is not PostKind.NOTIFICATION:
        return CONFIRMATION_SUBJECT
    return parcel.delivery.notice.subject or DEFAULT_SUBJECT


def _answer(code: int, error: Exception) -> ReceiverAnswer:
    verdict = DeliveryResult.REFUSED if code >= _PERMANENT else DeliveryResult.FAILED
    return ReceiverAnswer(verdict, f"{error}"[:512])
