"""How messages can be had: the protocols of subscriptions, and the endpoints that go with each."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from sagehen.api.call import Call
from sagehen.api.sns.refusals import invalid

__all__ = ["check_endpoint"]

LONGEST_ENDPOINT = 2048
_NOT_DELIVERED = ("sms", "application", "lambda", "firehose")
_MAIL = re.compile(r"[^@\s,;:<>()\[\]\\\"]{1,64}@[^@\s,;:<>()\[\]\\\"]{1,255}")


def check_endpoint(call: Call, protocol: str, endpoint: str) -> None:
    """Refuse what cannot be delivered to.

    Raises:
        AwsError: Sagehen does not deliver by this protocol, or the endpoint is none of it.
    """
    if protocol in _NOT_DELIVERED:
        raise invalid(
            "Protocol",
            f"Sagehen does not deliver by {protocol}; it does by {', '.join(sorted(_CHECKS))}",
        )
    if protocol not in _CHECKS:
        raise invalid(
            f"Amazon SNS does not support this protocol string: {protocol[:64]}",
            f"Sagehen delivers by {', '.join(sorted(_CHECKS))}",
        )
    if len(endpoint) > LONGEST_ENDPOINT:
        raise invalid("Endpoint", f"it has at most {LONGEST_ENDPOINT} characters")
    _CHECKS[protocol](call, endpoint)


def _url(*schemes: str) -> Callable[[Call, str], None]:
    def check(_: Call, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            well = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            well = False
        if not well or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
            raise invalid(
                "Endpoint must match the specified protocol",
                f"it is a URL that begins with {' or '.join(f'{one}://' for one in schemes)}",
            )

    return check


def _mail(call: Call, endpoint: str) -> None:
    if not _MAIL.fullmatch(endpoint):
        raise invalid("Email address")
    if call.settings.smtp_host is None:
        raise invalid("Protocol", "e-mail is sent once the setting smtp_host names a mail server")


def _queue(call: Call, endpoint: str) -> None:
    if endpoint.endswith(".fifo"):
        # The words come twice in SNS, too.
        raise invalid(
            "Invalid parameter: Endpoint",
            "FIFO SQS Queues can not be subscribed to standard SNS topics",
        )
    name = endpoint.rpartition(":")[2]
    if not name or endpoint != call.arns.sqs(name):
        raise invalid("SQS endpoint ARN")


_CHECKS: dict[str, Callable[[Call, str], None]] = {
    "email": _mail,
    "email-json": _mail,
    "http": _url("http"),
    "https": _url("https"),
    "sqs": _queue,
    "webhook": _url("http", "https"),
}
