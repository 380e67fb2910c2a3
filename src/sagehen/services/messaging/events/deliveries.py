"""Webhooks and API destinations of rules as destinations of the outbox, and their dead letters."""

import base64
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from sqlalchemy import Connection

from sagehen.services.messaging.events import rule_store as event_rules
from sagehen.services.messaging.events import target_store as event_targets
from sagehen.services.messaging.events.records import (
    EventResource,
    RuleRecord,
    TargetRecord,
    read_target_address,
    target_address,
)
from sagehen.services.messaging.events.resource_store import (
    EVENT_CONNECTIONS,
    EVENT_DESTINATIONS,
)
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.outbox.destinations import (
    Delivery,
    DeliveryResult,
    Destination,
    HttpRequest,
    OutboxMessage,
)
from sagehen.services.messaging.sqs.message_store import put_message
from sagehen.services.messaging.sqs.records import MessageContent, NewMessage
from sagehen.services.messaging.webhooks import webhook_request

__all__ = [
    "EVENT_DELAYS",
    "MAX_AGE_SECONDS",
    "MAX_RETRIES",
    "EventMessage",
    "EventTexts",
    "TargetDestination",
    "api_destination",
    "put_dead_letter",
    "resolve_target",
    "webhook_destination",
]

log = logging.getLogger(__name__)

API_USER_AGENT = "Amazon/EventBridge/ApiDestinations"
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_MAX_PER_SECOND = 300
"""EventBridge's default"""

MAX_RETRIES = 185
MAX_AGE_SECONDS = 86_400.0
_DOUBLINGS = 9
_MAX_DELAY = (MAX_AGE_SECONDS - (2**_DOUBLINGS - 1)) / (MAX_RETRIES - _DOUBLINGS)

EVENT_DELAYS = tuple(
    min(float(2**number), _MAX_DELAY) if number < _DOUBLINGS else _MAX_DELAY
    for number in range(MAX_RETRIES)
)
"""seconds, doubled from 1 s to about 8 minutes; 24 hours in all, as in EventBridge"""


class EventTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The names in JSON are those of earlier versions, whose deliveries may still wait."""

    input: str = msgspec.field(name="default")
    """what the target receives"""
    event: str = msgspec.field(name="dead-letter")
    """the untransformed event"""


class EventMessage(OutboxMessage, frozen=True, kw_only=True):
    """An event on its way to one target."""

    message: str
    """JSON of EventTexts"""
    trace_header: str | None = None
    """X-Amzn-Trace-Id"""

    @property
    def texts(self) -> EventTexts:
        return msgspec.json.decode(self.message, type=EventTexts)


@dataclass(frozen=True, kw_only=True)
class TargetDestination(Destination):
    """A webhook, which has a secret, or an API destination, which has a method."""

    rule_arn: str
    target_arn: str = field(repr=False)
    """may be a URL"""
    dead_letter_arn: str | None
    headers: Mapping[str, str] = field(repr=False)
    method: str | None = None
    secret: str = field(default="", repr=False)
    """signs deliveries, never sent"""

    def compose(self, delivery: Delivery, now: float) -> HttpRequest:
        message = delivery.read(EventMessage)
        text = message.texts.input
        trace = {"X-Amzn-Trace-Id": message.trace_header} if message.trace_header else {}
        headers = {**trace, **self.headers}
        if self.method is None:
            return webhook_request(
                self.endpoint, self.secret, message.message_id, text, now, headers
            )
        return HttpRequest(
            url=self.endpoint,
            method=self.method,
            headers={
                "Content-Type": "application/json; charset=utf-8",
                "User-Agent": API_USER_AGENT,
                **headers,
            },
            body=b"" if self.method in _WITHOUT_BODY else text.encode(),
            result_of=_result_of,
        )

    def dead_letter(
        self, connection: Connection, delivery: Delivery, reason: str, retries_exhausted: bool
    ) -> None:
        attributes = {
            "RULE_ARN": self.rule_arn,
            "TARGET_ARN": self.target_arn,
            "ERROR_CODE": "SDK_CLIENT_ERROR",
            "ERROR_MESSAGE": reason or "The receiver did not accept the event.",
            "RETRY_ATTEMPTS": str(delivery.attempts),
        }
        if retries_exhausted:
            attributes["EXHAUSTED_RETRY_CONDITION"] = (
                "MaximumRetryAttempts"
                if delivery.attempts >= len(self.retry_delays)
                else "MaximumEventAgeInSeconds"
            )
        message = delivery.read(EventMessage)
        put_dead_letter(
            connection, self.dead_letter_arn, message.texts.event, message.published_at, attributes
        )


def _result_of(status: int) -> DeliveryResult:
    """EventBridge retries 409, 429 and 5xx (eb-api-destinations)."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    if status in (409, 429) or status >= 500:
        return DeliveryResult.FAILED
    return DeliveryResult.REFUSED


def resolve_target(connection: Connection, address: str) -> TargetDestination | None:
    """Returns None if the rule, the target, its API destination or its connection is gone."""
    rule_name, target_id = read_target_address(address)
    rule = event_rules.get(connection, rule_name)
    target = event_targets.get(connection, rule_name, target_id)
    if rule is None or target is None:
        return None
    if not target.target_arn.startswith("arn:"):
        return webhook_destination(rule, target)
    destination = EVENT_DESTINATIONS.by_arn(connection, target.target_arn)
    if destination is None:
        return None
    credentials = EVENT_CONNECTIONS.by_arn(connection, destination.definition["ConnectionArn"])
    return api_destination(rule, target, destination, credentials) if credentials else None


def webhook_destination(rule: RuleRecord, target: TargetRecord) -> TargetDestination:
    http = target.definition.get("HttpParameters", {})
    return _destination(
        rule,
        target,
        endpoint=_with_query(target.target_arn, http.get("QueryStringParameters", {})),
        headers=http.get("HeaderParameters", {}),
        secret=target.secret or "",
    )


def api_destination(
    rule: RuleRecord, target: TargetRecord, destination: EventResource, connection: EventResource
) -> TargetDestination:
    """The connection's parameters override the target's."""
    definition, http = destination.definition, target.definition.get("HttpParameters", {})
    authorization = connection.definition["AuthParameters"]
    invocation = authorization.get("InvocationHttpParameters", {})
    url = definition["InvocationEndpoint"]
    for value in http.get("PathParameterValues", []):
        url = url.replace("*", quote(value, safe=""), 1)
    query = {
        **http.get("QueryStringParameters", {}),
        **_pairs(invocation.get("QueryStringParameters", [])),
    }
    return _destination(
        rule,
        target,
        endpoint=_with_query(url, query),
        headers={
            **http.get("HeaderParameters", {}),
            **_pairs(invocation.get("HeaderParameters", [])),
            **_authorization(authorization),
        },
        method=definition["HttpMethod"],
        max_per_second=definition.get("InvocationRateLimitPerSecond", _MAX_PER_SECOND),
    )


def _destination(rule: RuleRecord, target: TargetRecord, **fields: Any) -> TargetDestination:
    retries = target.definition.get("RetryPolicy", {})
    return TargetDestination(
        address=target_address(rule, target.target_id),
        retry_delays=EVENT_DELAYS[: retries.get("MaximumRetryAttempts", MAX_RETRIES)],
        max_age_seconds=retries.get("MaximumEventAgeInSeconds", MAX_AGE_SECONDS),
        rule_arn=rule.arn,
        target_arn=target.target_arn,
        dead_letter_arn=target.definition.get("DeadLetterConfig", {}).get("Arn"),
        **fields,
    )


def _authorization(parameters: Mapping[str, Any]) -> dict[str, str]:
    if "ApiKeyAuthParameters" in parameters:
        key = parameters["ApiKeyAuthParameters"]
        return {key["ApiKeyName"]: key["ApiKeyValue"]}
    basic = parameters["BasicAuthParameters"]
    pair = f"{basic['Username']}:{basic['Password']}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    if not parameters:
        return url
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode(parameters)]))
    return urlunsplit(parts._replace(query=query))


def _pairs(parameters: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {item["Key"]: item.get("Value", "") for item in parameters if "Key" in item}


def put_dead_letter(
    connection: Connection,
    queue_arn: str | None,
    body: str,
    now: float,
    attributes: Mapping[str, str],
) -> None:
    """Puts an event into the target's dead-letter queue, if it has one."""
    if queue_arn is None:
        return
    strings = {name: MessageAttribute("String", value) for name, value in attributes.items()}
    message = NewMessage(
        message_id=str(uuid.uuid4()), body=body, content=MessageContent(attributes=strings)
    )
    if not put_message(connection, queue_arn, message, now):
        extra = {"action": "event", "queue": queue_arn}
        log.warning("An event was lost: its queue for dead letters is gone.", extra=extra)
