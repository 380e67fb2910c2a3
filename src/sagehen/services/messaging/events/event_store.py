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
from sagehen.services.messaging.events.deliveries import DEAD_LETTER, TARGET, address_of
from sagehen.services.messaging.events.inputs import input_for, text_to_read
from sagehen.services.messaging.events.records import Event, RuleRecord, TargetRecord
from sagehen.services.messaging.filters.policy import read_pattern
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.records import (
    Delivery,
    MessageAttribute,
    Notice,
    SubscriptionRecord,
)
from sagehen.services.messaging.sqs.notice_queues import put_message
from sagehen.services.messaging.sqs.records import MessageContent, NewMessage

__all__ = ["put_event", "put_undelivered"]

log = logging.getLogger(__name__)


def put_event(connection: Connection, event: Event) -> None:
    """Deliveries are committed or rolled back with the caller's transaction."""
    patterns = event_rules.enabled_patterns(connection)
    if not patterns:
        return
    envelope = event.envelope()
    for name, pattern in patterns:
        rule = event_rules.get(connection, name) if _wants(name, pattern, envelope) else None
        if rule is not None:
            for target in event_targets.of_rule(connection, name):
                _send(connection, event, rule, target)


def put_undelivered(
    connection: Connection,
    receiver: SubscriptionRecord,
    delivery: Delivery,
    why: str,
    tried_out: bool,
) -> None:
    """Puts an event into the target's dead-letter queue, if any.

    Args:
        tried_out: whether retries ended by number or age.
    """
    told = {
        "RULE_ARN": receiver.topic_arn,
        "TARGET_ARN": receiver.attributes[TARGET],
        "ERROR_CODE": "SDK_CLIENT_ERROR",
        "ERROR_MESSAGE": why or "The receiver did not accept the event.",
        "RETRY_ATTEMPTS": str(delivery.attempts),
    }
    if tried_out:
        spent = delivery.attempts >= int(receiver.attributes["MaximumRetryAttempts"])
        told["EXHAUSTED_RETRY_CONDITION"] = (
            "MaximumRetryAttempts" if spent else "MaximumEventAgeInSeconds"
        )
    queue_arn = receiver.attributes.get("DeadLetters")
    event = delivery.notice.text_for(DEAD_LETTER)
    _put_dead_letter(connection, queue_arn, event, delivery.notice.published_at, told)


def _wants(rule_name: str, pattern: str, envelope: Mapping[str, object]) -> bool:
    try:
        return read_pattern(pattern).matches(envelope)
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
        message = NewMessage(message_id=str(uuid.uuid4()), body=text)
        sent = put_message(connection, target.target_arn, message, event.sent_at)
    else:
        sent = _deliver(connection, event, rule, target, text)
    if not sent:
        _note_missing(connection, event, rule, target)


def _deliver(
    connection: Connection, event: Event, rule: RuleRecord, target: TargetRecord, text: str
) -> bool:
    """Returns False if the target's destination is gone."""
    address = address_of(rule, target.target_id)
    if event_targets.find_receiver(connection, address) is None:
        return False
    # Dead letters contain the original event, not the target's input.
    texts = {"default": text, DEAD_LETTER: input_for(event, rule, {})}
    deliveries.add(connection, _made(event, rule, target, texts), [address])
    return True


def _notice(event: Event, rule: RuleRecord, target: TargetRecord, text: str) -> Notice:
    texts = {"default": text, "email": text_to_read(text)}
    return _made(event, rule, target, texts)


def _made(event: Event, rule: RuleRecord, target: TargetRecord, texts: dict[str, str]) -> Notice:
    # An event has the same id per target on each retry.
    address = f"{address_of(rule, target.target_id)}/{event.event_id}"
    return Notice(
        message_id=str(uuid.uuid5(uuid.NAMESPACE_URL, address)),
        topic_arn=target.target_arn,
        structure="json",
        message=msgspec.json.encode(texts).decode(),
        published_at=event.sent_at,
    )


def _note_missing(
    connection: Connection, event: Event, rule: RuleRecord, target: TargetRecord
) -> None:
    about = {"action": "event", "rule": rule.name, "target": target.target_arn}
    log.warning("An event found its target gone.", extra=about)
    _put_dead_letter(
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


def _put_dead_letter(
    connection: Connection, queue_arn: str | None, body: str, now: float, told: Mapping[str, str]
) -> None:
    if queue_arn is None:
        return
    attributes = {name: MessageAttribute("String", value) for name, value in told.items()}
    message = NewMessage(
        message_id=str(uuid.uuid4()), body=body, content=MessageContent(attributes=attributes)
    )
    if not put_message(connection, queue_arn, message, now):
        about = {"action": "event", "queue": queue_arn}
        log.warning("An event was lost: its queue for dead letters is gone.", extra=about)
