"""Sends events to the targets of matching rules."""

import logging
import uuid
from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.services.messaging.events import (
    rule_store as event_rules,
)
from sagehen.services.messaging.events import (
    target_store as event_targets,
)
from sagehen.services.messaging.events.deliveries import (
    EventMessage,
    EventTexts,
    put_dead_letter,
    resolve_target,
)
from sagehen.services.messaging.events.inputs import input_for, text_to_read
from sagehen.services.messaging.events.records import (
    Event,
    RuleRecord,
    TargetRecord,
    target_address,
)
from sagehen.services.messaging.filters.conditions import STORED_PATTERN
from sagehen.services.messaging.filters.policy import read_pattern
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.messaging.sqs.message_store import put_message
from sagehen.services.messaging.sqs.records import MessageContent, NewMessage

__all__ = ["put_event"]

log = logging.getLogger(__name__)


def put_event(connection: Connection, event: Event) -> None:
    """Deliveries are committed or rolled back with the caller's transaction."""
    patterns = event_rules.enabled_patterns(connection)
    if not patterns:
        return
    envelope = event.envelope()
    for name, pattern in patterns:
        rule = event_rules.get(connection, name) if _matches(name, pattern, envelope) else None
        if rule is not None:
            for target in event_targets.of_rule(connection, name):
                _send(connection, event, rule, target)


def _matches(rule_name: str, pattern: str, envelope: Mapping[str, object]) -> bool:
    try:
        return read_pattern(pattern, STORED_PATTERN).matches(envelope)
    except Invalid:
        # The pattern was checked when it was put. One bad rule must not block the others.
        log.exception("A pattern cannot be read.", extra={"action": "event", "rule": rule_name})
        return False


def _send(connection: Connection, event: Event, rule: RuleRecord, target: TargetRecord) -> None:
    text = input_for(event, rule, target.definition)
    kind = target.target_arn.split(":", 3)[2] if target.target_arn.startswith("arn:") else ""
    if kind == "sns":
        sent = topics.publish(connection, _notice(event, rule, target, text))
    elif kind == "sqs":
        content = MessageContent(trace_header=event.trace_header)
        message = NewMessage(message_id=str(uuid.uuid4()), body=text, content=content)
        sent = put_message(connection, target.target_arn, message, event.sent_at)
    else:
        sent = _deliver(connection, event, rule, target, text)
    if not sent:
        _handle_missing(connection, event, rule, target)


def _deliver(
    connection: Connection, event: Event, rule: RuleRecord, target: TargetRecord, text: str
) -> bool:
    """Returns False if the target's destination is gone."""
    address = target_address(rule, target.target_id)
    if resolve_target(connection, address) is None:
        return False
    # Dead letters contain the original event, not the target's input.
    texts = EventTexts(input=text, event=input_for(event, rule, {}))
    message = EventMessage(
        message_id=_message_id(event, rule, target),
        published_at=event.sent_at,
        message=msgspec.json.encode(texts).decode(),
        trace_header=event.trace_header,
    )
    deliveries.add(connection, message, [address], "Event")
    return True


def _notice(event: Event, rule: RuleRecord, target: TargetRecord, text: str) -> Notice:
    texts = {"default": text, "email": text_to_read(text)}
    return Notice(
        message_id=_message_id(event, rule, target),
        topic_arn=target.target_arn,
        structure="json",
        message=msgspec.json.encode(texts).decode(),
        published_at=event.sent_at,
        trace_header=event.trace_header,
    )


def _message_id(event: Event, rule: RuleRecord, target: TargetRecord) -> str:
    """An event has the same id per target on each retry."""
    name = f"{target_address(rule, target.target_id)}/{event.event_id}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _handle_missing(
    connection: Connection, event: Event, rule: RuleRecord, target: TargetRecord
) -> None:
    extra = {"action": "event", "rule": rule.name, "target": target.target_arn}
    log.warning("An event found its target gone.", extra=extra)
    put_dead_letter(
        connection,
        target.definition.get("DeadLetterConfig", {}).get("Arn"),
        input_for(event, rule, {}),
        event.sent_at,
        {
            "RULE_ARN": rule.arn,
            "TARGET_ARN": target.target_arn,
            "ERROR_CODE": "NO_RESOURCE",
            "ERROR_MESSAGE": "The specified target does not exist.",
        },
    )
