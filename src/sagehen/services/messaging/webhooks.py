"""Signed requests in the form of Standard Webhooks, for subscriptions and rule targets.

Source: the Standard Webhooks specification 1.0.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

from sagehen.base.errors import Invalid
from sagehen.services.messaging.outbox.destinations import DeliveryResult, HttpRequest

__all__ = ["WEBHOOK_DELAYS", "new_secret", "read_secret", "webhook_headers", "webhook_request"]

WEBHOOK_DELAYS: Sequence[float] = (
    5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400,
)  # fmt: skip
"""seconds; the specification's recommendation, some three days in all"""

USER_AGENT = "Sagehen"
_GONE = 410
_PREFIX = "whsec_"
_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 64


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def read_secret(text: str) -> bytes:
    """Raises Invalid."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or not _MIN_SECRET_BYTES <= len(key) <= _MAX_SECRET_BYTES:
        raise Invalid(
            f"a secret is {_PREFIX} and {_MIN_SECRET_BYTES} to {_MAX_SECRET_BYTES} bytes in Base64"
        )
    return key


def webhook_headers(secret: str, message_id: str, now: float, body: bytes) -> dict[str, str]:
    """`now` is the time of this attempt."""
    timestamp = str(int(now))
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(read_secret(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def webhook_request(
    url: str,
    secret: str,
    message_id: str,
    text: str,
    now: float,
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
) -> HttpRequest:
    body = text.encode()
    return HttpRequest(
        url=url,
        headers={
            "Content-Type": content_type,
            "User-Agent": USER_AGENT,
            **(headers or {}),
            **webhook_headers(secret, message_id, now, body),
        },
        body=body,
        result_of=_result_of,
    )


def _result_of(status: int) -> DeliveryResult:
    """The specification retries everything but 2xx and 410."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    return DeliveryResult.REFUSED if status == _GONE else DeliveryResult.FAILED
