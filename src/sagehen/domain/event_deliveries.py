"""Webhooks that are targets of rules: to the deliverer they are subscriptions of a protocol."""

from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from sagehen.domain.events import RuleRecord, TargetRecord
from sagehen.domain.topics import SubscriptionRecord, SubscriptionState, TopicRecord

__all__ = [
    "DEAD_LETTER",
    "EVENT_DELAYS",
    "MAX_AGE_SECONDS",
    "MAX_RETRIES",
    "PROTOCOL",
    "SECRET",
    "address_of",
    "as_subscription",
    "is_address",
    "read_address",
]

PROTOCOL = "event"
"""Of these receivers; nobody can subscribe by it."""
DEAD_LETTER = "dead-letter"
"""Whose text a notice has the event for that a target gets transformed."""
SECRET = "WebhookSecret"
"""Among a target's headers: not sent, but what it signs by."""

MAX_RETRIES = 185
MAX_AGE_SECONDS = 86_400.0
_DOUBLINGS = 9
_LONGEST = (MAX_AGE_SECONDS - (2**_DOUBLINGS - 1)) / (MAX_RETRIES - _DOUBLINGS)

EVENT_DELAYS = tuple(
    min(float(2**number), _LONGEST) if number < _DOUBLINGS else _LONGEST
    for number in range(MAX_RETRIES)
)
"""From a second on, doubled up to some eight minutes: 185 over 24 hours, as EventBridge's are."""


def address_of(rule: RuleRecord, target_id: str) -> str:
    """What deliveries to a target are kept under."""
    return f"{rule.arn.replace(':rule/', ':target/', 1)}/{target_id}"


def is_address(arn: str) -> bool:
    """Whether it is a target's and not a subscription's."""
    return arn.split(":")[2:3] == ["events"]


def read_address(address: str) -> tuple[str, str]:
    """The name of the rule and the id of the target; neither can have a slash."""
    _, rule_name, target_id = address.rsplit("/", 2)
    return rule_name, target_id


def as_subscription(
    rule: RuleRecord, target: TargetRecord
) -> tuple[SubscriptionRecord, TopicRecord]:
    """A webhook as the deliverer knows its receivers, and the rule as it knows topics."""
    given = target.definition
    retries = given.get("RetryPolicy", {})
    http = given.get("HttpParameters", {})
    attributes = {
        SECRET: target.secret or "",
        "MaximumRetryAttempts": str(retries.get("MaximumRetryAttempts", MAX_RETRIES)),
        "MaximumEventAgeInSeconds": str(retries.get("MaximumEventAgeInSeconds", MAX_AGE_SECONDS)),
        "Headers": msgspec.json.encode(http.get("HeaderParameters", {})).decode(),
    }
    if "DeadLetterConfig" in given:
        attributes["DeadLetters"] = given["DeadLetterConfig"]["Arn"]
    subscription = SubscriptionRecord(
        arn=address_of(rule, target.target_id),
        topic_arn=rule.arn,
        protocol=PROTOCOL,
        endpoint=_url(target),
        state=SubscriptionState.CONFIRMED,
        created_at=rule.created_at,
        attributes=attributes,
        token="",
        token_expires_at=0,
    )
    return subscription, TopicRecord(arn=rule.arn, created_at=rule.created_at, attributes={})


def _url(target: TargetRecord) -> str:
    """With the target's own query behind what the URL has."""
    more = target.definition.get("HttpParameters", {}).get("QueryStringParameters", {})
    if not more:
        return target.target_arn
    parts = urlsplit(target.target_arn)
    query = "&".join(filter(None, [parts.query, urlencode(more)]))
    return urlunsplit(parts._replace(query=query))
