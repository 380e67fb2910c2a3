"""What is published to a topic."""

from collections.abc import Mapping

import msgspec

from sagehen.errors import Invalid

__all__ = ["MessageAttribute", "Notice"]


class MessageAttribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of SNS's: `data_type` is `String`, `String.Array`, `Number` or `Binary`."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A message to all who subscribe to a topic."""

    message_id: str
    """The same on every delivery and every retry: who gets it twice knows by this."""
    topic_arn: str
    message: str
    published_at: float
    """Seconds since the epoch."""
    subject: str | None = None
    structure: str | None = None
    """`json` where `message` is an object with a text for each protocol."""
    attributes: Mapping[str, MessageAttribute] = msgspec.field(default_factory=dict)
    dimensions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the metric that counts a delivery given up (NotificationFailures); empty: none does."""

    def text_for(self, protocol: str) -> str:
        """The message as subscribers by `protocol` get it.

        Raises:
            Invalid: its structure is `json`, but it is no object of texts with a `default`.
        """
        if self.structure != "json":
            return self.message
        try:
            texts = msgspec.json.decode(self.message, type=dict[str, str])
            return texts.get(protocol) or texts["default"]
        except (msgspec.ValidationError, KeyError):
            raise Invalid("Message Structure - No default entry in JSON message body") from None
        except (msgspec.DecodeError, RecursionError):
            raise Invalid("Message Structure - JSON message body failed to parse") from None
