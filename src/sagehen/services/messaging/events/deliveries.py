"""Presents HTTP targets of rules to the deliverer as subscriptions."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from sagehen.services.messaging.events.records import EventResource, RuleRecord, TargetRecord
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)

__all__ = [
    "DEAD_LETTER",
    "EVENT_DELAYS",
    "HEADERS",
    "MAX_AGE_SECONDS",
    "MAX_RETRIES",
    "METHOD",
    "PROTOCOL",
    "SECRET",
    "TARGET",
    "address_of",
    "as_api",
    "as_webhook",
    "is_address",
    "read_address",
]

PROTOCOL = "event"
"""internal: no client can subscribe by it"""
DEAD_LETTER = "dead-letter"
"""protocol name under which a notice has the untransformed event"""
SECRET = "WebhookSecret"
"""used for signing, never sent"""
HEADERS, METHOD, TARGET = "Headers", "Method", "Target"
"""attributes of these subscriptions: extra headers as JSON; HTTP method, absent for webhooks;
target ARN"""
_MOST_PER_SECOND = 300
"""EventBridge's default"""

MAX_RETRIES = 185
MAX_AGE_SECONDS = 86_400.0
_DOUBLINGS = 9
_LONGEST = (MAX_AGE_SECONDS - (2**_DOUBLINGS - 1)) / (MAX_RETRIES - _DOUBLINGS)

EVENT_DELAYS = tuple(
    min(float(2**number), _LONGEST) if number < _DOUBLINGS else _LONGEST
    for number in range(MAX_RETRIES)
)
"""seconds, doubled from 1 s to about 8 minutes; 24 hours in all, as in EventBridge"""


def address_of(rule: RuleRecord, target_id: str) -> str:
    return f"{rule.arn.replace(':rule/', ':target/', 1)}/{target_id}"


def is_address(arn: str) -> bool:
    """Tells a target's address from a subscription ARN."""
    return arn.split(":")[2:3] == ["events"]


def read_address(address: str) -> tuple[str, str]:
    """Returns rule name and target id; neither can contain a slash."""
    _, rule_name, target_id = address.rsplit("/", 2)
    return rule_name, target_id


def as_webhook(rule: RuleRecord, target: TargetRecord) -> tuple[SubscriptionRecord, TopicRecord]:
    """Returns a webhook as a subscription, and its rule as a topic."""
    http = target.definition.get("HttpParameters", {})
    url = _with_query(target.target_arn, http.get("QueryStringParameters", {}))
    own = {SECRET: target.secret or "", HEADERS: _json(http.get("HeaderParameters", {}))}
    return _subscription(rule, target, url, own), _topic(rule)


def as_api(
    rule: RuleRecord, target: TargetRecord, destination: EventResource, connection: EventResource
) -> tuple[SubscriptionRecord, TopicRecord]:
    """Returns an API destination as a subscription, and its rule as a topic.

    The connection's parameters override the target's.
    """
    given, http = destination.definition, target.definition.get("HttpParameters", {})
    authorization = connection.definition["AuthParameters"]
    always = authorization.get("InvocationHttpParameters", {})
    headers = {
        **http.get("HeaderParameters", {}),
        **_pairs(always.get("HeaderParameters", [])),
        **_authorization(authorization),
    }
    url = given["InvocationEndpoint"]
    for value in http.get("PathParameterValues", []):
        url = url.replace("*", quote(value, safe=""), 1)
    query = {
        **http.get("QueryStringParameters", {}),
        **_pairs(always.get("QueryStringParameters", [])),
    }
    own = {HEADERS: _json(headers), METHOD: given["HttpMethod"]}
    most = given.get("InvocationRateLimitPerSecond", _MOST_PER_SECOND)
    return _subscription(rule, target, _with_query(url, query), own), _topic(rule, most)


def _authorization(given: Mapping[str, Any]) -> dict[str, str]:
    if "ApiKeyAuthParameters" in given:
        key = given["ApiKeyAuthParameters"]
        return {key["ApiKeyName"]: key["ApiKeyValue"]}
    basic = given["BasicAuthParameters"]
    pair = f"{basic['Username']}:{basic['Password']}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _subscription(
    rule: RuleRecord, target: TargetRecord, url: str, own: Mapping[str, str]
) -> SubscriptionRecord:
    retries = target.definition.get("RetryPolicy", {})
    attributes = {
        TARGET: target.target_arn,
        "MaximumRetryAttempts": str(retries.get("MaximumRetryAttempts", MAX_RETRIES)),
        "MaximumEventAgeInSeconds": str(retries.get("MaximumEventAgeInSeconds", MAX_AGE_SECONDS)),
        **own,
    }
    if "DeadLetterConfig" in target.definition:
        attributes["DeadLetters"] = target.definition["DeadLetterConfig"]["Arn"]
    return SubscriptionRecord(
        arn=address_of(rule, target.target_id),
        topic_arn=rule.arn,
        protocol=PROTOCOL,
        endpoint=url,
        state=SubscriptionState.CONFIRMED,
        created_at=rule.created_at,
        attributes=attributes,
        token="",
        token_expires_at=0,
    )


def _topic(rule: RuleRecord, most_per_second: int | None = None) -> TopicRecord:
    attributes = {}
    if most_per_second is not None:
        throttle = {"maxReceivesPerSecond": most_per_second}
        attributes["DeliveryPolicy"] = _json({"http": {"defaultThrottlePolicy": throttle}})
    return TopicRecord(arn=rule.arn, created_at=rule.created_at, attributes=attributes)


def _with_query(url: str, more: Mapping[str, str]) -> str:
    if not more:
        return url
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode(more)]))
    return urlunsplit(parts._replace(query=query))


def _pairs(given: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {one["Key"]: one.get("Value", "") for one in given if "Key" in one}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
