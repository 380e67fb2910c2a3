"""Builds and signs posted messages.

Source: SNS's developer guide (sns-message-and-json-formats, sns-verify-signature-of-message).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sns.records import Notice, PostKind

__all__ = [
    "Envelope",
    "Links",
    "Sign",
    "enclose",
    "seal",
    "string_to_sign",
]

Sign = Callable[[str, str], str]
"""text and SignatureVersion to signature in Base64"""

_SIGNED = {
    PostKind.NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
}
_SIGNED_CONFIRMATION = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The unsigned content of a posted message."""

    kind: PostKind = PostKind.NOTIFICATION
    message_id: str
    topic_arn: str
    subscription_arn: str
    message: str
    published_at: float
    subject: str | None = None
    attributes: dict[str, MessageAttribute] = msgspec.field(default_factory=dict)
    signature_version: str = "1"
    token: str | None = None
    """only in confirmations"""


class Links(msgspec.Struct, frozen=True):
    """This server's URLs in messages."""

    base_url: str
    """without a trailing slash"""
    certificate_path: str

    @property
    def certificate(self) -> str:
        return self.base_url + self.certificate_path

    def subscribe(self, topic_arn: str, token: str) -> str:
        return self._action("ConfirmSubscription", TopicArn=topic_arn, Token=token)

    def unsubscribe(self, subscription_arn: str) -> str:
        return self._action("Unsubscribe", SubscriptionArn=subscription_arn)

    def _action(self, action: str, **parameters: str) -> str:
        return f"{self.base_url}/?{urlencode({'Action': action, **parameters}, safe=':')}"


def enclose(
    notice: Notice, subscription_arn: str, protocol: str, signature_version: str
) -> Envelope:
    """Raises Invalid as `Notice.text_for` does."""
    return Envelope(
        message_id=notice.message_id,
        topic_arn=notice.topic_arn,
        subscription_arn=subscription_arn,
        message=notice.text_for(protocol),
        published_at=notice.published_at,
        subject=notice.subject,
        attributes=dict(notice.attributes),
        signature_version=signature_version,
    )


def seal(envelope: Envelope, links: Links, sign: Sign) -> str:
    """Returns signed JSON."""
    fields = _fields(envelope, links)
    fields["SignatureVersion"] = envelope.signature_version
    fields["Signature"] = sign(string_to_sign(fields), envelope.signature_version)
    fields["SigningCertURL"] = links.certificate
    if envelope.kind is PostKind.NOTIFICATION:
        fields["UnsubscribeURL"] = links.unsubscribe(envelope.subscription_arn)
    if envelope.attributes:
        fields["MessageAttributes"] = {
            name: _attribute(attribute) for name, attribute in envelope.attributes.items()
        }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def string_to_sign(fields: Mapping[str, Any]) -> str:
    """Returns the signed text: a line per key and per value."""
    signed = _SIGNED.get(fields["Type"], _SIGNED_CONFIRMATION)
    return "".join([f"{key}\n{fields[key]}\n" for key in signed if key in fields])


def _fields(envelope: Envelope, links: Links) -> dict[str, Any]:
    fields: dict[str, Any] = {"Type": str(envelope.kind), "MessageId": envelope.message_id}
    if envelope.token is not None:
        fields["Token"] = envelope.token
    fields["TopicArn"] = envelope.topic_arn
    if envelope.subject is not None:
        fields["Subject"] = envelope.subject
    fields["Message"] = envelope.message
    if envelope.token is not None:
        fields["SubscribeURL"] = links.subscribe(envelope.topic_arn, envelope.token)
    fields["Timestamp"] = _timestamp(envelope.published_at)
    return fields


def _attribute(attribute: MessageAttribute) -> dict[str, str]:
    value = msgspec.to_builtins(attribute.binary_value) if attribute.string_value is None else None
    return {"Type": attribute.data_type, "Value": value or attribute.string_value or ""}


def _timestamp(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
