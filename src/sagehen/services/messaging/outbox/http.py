"""Deliveries by HTTP in the forms of SNS, Standard Webhooks and EventBridge."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sagehen.base.clock import Clock
from sagehen.services.messaging.events.deliveries import HEADERS, METHOD
from sagehen.services.messaging.outbox.attempts import (
    DeliveryAttempt,
    DeliveryResult,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.retry_policy import DEFAULT_CONTENT_TYPE
from sagehen.services.messaging.sns.envelopes import Envelope, enclose, webhook_headers
from sagehen.services.messaging.sns.records import PostKind

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HttpPost"]

USER_AGENT = "Amazon Simple Notification Service Agent"
"""some receivers check for it"""
WEBHOOK_USER_AGENT = "Sagehen"
API_USER_AGENT = "Amazon/EventBridge/ApiDestinations"
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_READ_OF_ANSWER = 64 * 1024
"""bytes read to reuse the connection; a longer body closes it"""
_GONE = 410

Seal = Callable[[Envelope], str]
_Headers = dict[str, str]


class HttpPost:
    """Posts to any URL; follows no redirects."""

    def __init__(self, seal: Seal, clock: Clock, timeout_seconds: float) -> None:
        """`timeout_seconds` bounds a whole attempt."""
        self._seal = seal
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def notify(self, parcel: DeliveryAttempt) -> ReceiverAnswer:
        """Serves the protocols `http` and `https`."""
        if (
            parcel.delivery.kind is PostKind.NOTIFICATION
            and parcel.subscription.attributes.get("RawMessageDelivery") == "true"
        ):
            body = parcel.delivery.notice.text_for(parcel.subscription.protocol)
        else:
            # Off the event loop: signing takes longest.
            body = await asyncio.to_thread(self._seal, envelope_of(parcel))
        return await self._post(parcel, body.encode(), _sns_headers(parcel), _sns_verdict)

    async def call_webhook(self, parcel: DeliveryAttempt) -> ReceiverAnswer:
        """Posts in the form of Standard Webhooks."""
        notice = parcel.delivery.notice
        body = notice.text_for(parcel.subscription.protocol).encode()
        headers = {
            "Content-Type": parcel.policy.content_type or "application/json",
            "User-Agent": WEBHOOK_USER_AGENT,
            **_own_headers(parcel),
            **webhook_headers(
                parcel.subscription.attributes["WebhookSecret"],
                notice.message_id,
                self._clock.now(),
                body,
            ),
        }
        return await self._post(parcel, body, headers, _webhook_verdict)

    async def send_event(self, parcel: DeliveryAttempt) -> ReceiverAnswer:
        """Serves webhooks and API destinations of rules."""
        method = parcel.subscription.attributes.get(METHOD)
        if method is None:
            return await self.call_webhook(parcel)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": API_USER_AGENT,
            **_own_headers(parcel),
        }
        body = parcel.delivery.notice.text_for(parcel.subscription.protocol).encode()
        sent = b"" if method in _WITHOUT_BODY else body
        return await self._post(parcel, sent, headers, _api_verdict, method)

    async def _post(
        self,
        parcel: DeliveryAttempt,
        body: bytes,
        headers: dict[str, str],
        judge: Callable[[int], DeliveryResult],
        method: str = "POST",
    ) -> ReceiverAnswer:
        import aiohttp  # a fifth of control's start, and not every server has subscribers

        url = parcel.subscription.endpoint
        try:
            async with self._session().request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                answer = ReceiverAnswer(judge(response.status), f"status {response.status}")
                await _read_past(response)
                return answer
        except TimeoutError:
            return ReceiverAnswer(DeliveryResult.FAILED, "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return ReceiverAnswer(DeliveryResult.FAILED, f"{type(error).__name__}: {error}"[:512])

    def _session(self) -> "aiohttp.ClientSession":
        """Opens the session in the first caller's event loop."""
        if self._opened is None:
            self._opened = _open(self._timeout_seconds)
        return self._opened


def _open(timeout_seconds: float) -> "aiohttp.ClientSession":
    import aiohttp

    from sagehen.services.messaging.outbox.resolver import OwnThreadsResolver

    return aiohttp.ClientSession(
        # Callers limit concurrency.
        connector=aiohttp.TCPConnector(limit=0, resolver=OwnThreadsResolver()),
        timeout=aiohttp.ClientTimeout(total=timeout_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def envelope_of(parcel: DeliveryAttempt) -> Envelope:
    delivery, subscription = parcel.delivery, parcel.subscription
    version = parcel.topic.signature_version
    if delivery.kind is PostKind.NOTIFICATION:
        return enclose(delivery.notice, subscription.arn, subscription.protocol, version)
    return Envelope(
        kind=delivery.kind,
        message_id=delivery.notice.message_id,
        topic_arn=subscription.topic_arn,
        subscription_arn=subscription.arn,
        message=delivery.notice.message,
        published_at=delivery.notice.published_at,
        signature_version=version,
        token=subscription.token,
    )


def _sns_headers(parcel: DeliveryAttempt) -> dict[str, str]:
    delivery, subscription = parcel.delivery, parcel.subscription
    headers = {
        "Content-Type": parcel.policy.content_type or DEFAULT_CONTENT_TYPE,
        "User-Agent": USER_AGENT,
        "x-amz-sns-message-type": str(delivery.kind),
        "x-amz-sns-message-id": delivery.notice.message_id,
        "x-amz-sns-topic-arn": subscription.topic_arn,
    }
    if delivery.kind is not PostKind.SUBSCRIPTION_CONFIRMATION:
        headers["x-amz-sns-subscription-arn"] = subscription.arn
    if (
        delivery.kind is PostKind.NOTIFICATION
        and subscription.attributes.get("RawMessageDelivery") == "true"
    ):
        headers["x-amz-sns-rawdelivery"] = "true"
    return headers


def _sns_verdict(status: int) -> DeliveryResult:
    """A 4xx is final for SNS; so is a redirect here."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    return DeliveryResult.REFUSED if 300 <= status < 500 else DeliveryResult.FAILED


def _webhook_verdict(status: int) -> DeliveryResult:
    """The specification retries everything but 2xx and 410."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    return DeliveryResult.REFUSED if status == _GONE else DeliveryResult.FAILED


def _api_verdict(status: int) -> DeliveryResult:
    """EventBridge retries 409, 429 and 5xx (eb-api-destinations)."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    return (
        DeliveryResult.FAILED if status in (409, 429) or status >= 500 else DeliveryResult.REFUSED
    )


def _own_headers(parcel: DeliveryAttempt) -> dict[str, str]:
    return msgspec.json.decode(parcel.subscription.attributes.get(HEADERS, "{}"), type=_Headers)


async def _read_past(response: "aiohttp.ClientResponse") -> None:
    """Ignores errors: the status alone decides."""
    import aiohttp

    left = _READ_OF_ANSWER
    try:
        while left > 0:
            chunk = await response.content.read(left)
            if not chunk:
                return
            left -= len(chunk)
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    response.close()
