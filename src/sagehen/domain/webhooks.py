"""Webhooks as the Standard Webhooks specification (1.0) has them: its secrets and signatures."""

import base64
import binascii
import hashlib
import hmac
import secrets

from sagehen.errors import Invalid

__all__ = ["new_secret", "read_secret", "webhook_headers"]

_PREFIX = "whsec_"
_FEWEST_BYTES, _MOST_BYTES = 24, 64


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def read_secret(text: str) -> bytes:
    """The key that a secret such as `whsec_…` stands for; raises Invalid where it is none."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        raise Invalid(f"a secret is {_PREFIX} and {_FEWEST_BYTES} to {_MOST_BYTES} bytes in Base64")
    return key


def webhook_headers(secret: str, message_id: str, now: float, body: bytes) -> dict[str, str]:
    """What tells the receiver which message it is, and that it is ours. `now`: of this attempt."""
    timestamp = str(int(now))
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(read_secret(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
