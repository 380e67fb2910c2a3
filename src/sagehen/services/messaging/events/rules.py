"""Operations on EventBridge rules and their tags."""

from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of
from sagehen.services.messaging.events import (
    rule_store as event_rules,
)
from sagehen.services.messaging.events import (
    target_store as event_targets,
)
from sagehen.services.messaging.events.buses import check_bus, limit_of, start_of_page
from sagehen.services.messaging.events.errors import (
    bad_pattern,
    invalid,
    no_bus,
    no_rule,
    not_built,
    over_limit,
)
from sagehen.services.messaging.events.records import BUS, DISABLED, ENABLED, RuleRecord
from sagehen.services.messaging.filters.policy import read_pattern
from sagehen.services.messaging.message_attributes import is_text

__all__ = [
    "TAG_OPERATIONS",
    "check_pattern",
    "delete_rule",
    "describe_rule",
    "disable_rule",
    "enable_rule",
    "existing_rule",
    "list_rule_names_by_target",
    "list_rules",
    "put_rule",
]


def _check_exists(call: RequestContext, connection: Connection, arn: str) -> None:
    if arn == call.arns.event_bus(BUS):
        return
    name = arn.rpartition("/")[2]
    # The ARN may include the bus name.
    names = (call.arns.event_rule(name), call.arns.event_rule(f"default/{name}"))
    if arn not in names or event_rules.get(connection, name) is None:
        raise no_bus(name) if ":event-bus/" in arn else no_rule(name)


TAG_OPERATIONS = tags.TagOperations(
    arn_member="ResourceARN",
    check_exists=_check_exists,
    repeated_key=lambda: invalid(
        "Parameter Tags is not valid. Reason: a key comes more than once."
    ),
    too_many=lambda count: over_limit(
        f"A resource may have {tags.MAX_TAGS} tags; this request would make {count}."
    ),
)


def put_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Replaces all of an existing rule but its targets."""
    check_bus(call, params.get("EventBusName", BUS))
    given_tags = TAG_OPERATIONS.read(params.get("Tags", []))
    record = _record(call, params)
    with call.database.write() as connection:
        if event_rules.get(connection, record.name, lock=True) is None:
            _check_quota(connection, call)
            tags.put(connection, record.arn, given_tags)
        event_rules.put(connection, record)
    return {"RuleArn": record.arn}


def describe_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    check_bus(call, params.get("EventBusName", BUS))
    with call.database.read() as connection:
        rule = existing_rule(connection, params["Name"])
    return {**_listed(rule), "CreatedBy": call.settings.account_id}


def list_rules(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    check_bus(call, params.get("EventBusName", BUS))
    prefix, limit = params.get("NamePrefix", ""), limit_of(params)
    with call.database.read() as connection:
        rules = event_rules.page(connection, prefix, start_of_page(params), limit + 1)
    return page_of("Rules", [_listed(rule) for rule in rules], [rule.name for rule in rules], limit)


def list_rule_names_by_target(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    check_bus(call, params.get("EventBusName", BUS))
    limit = limit_of(params)
    with call.database.read() as connection:
        names = event_targets.rules_of(
            connection, params["TargetArn"], start_of_page(params), limit + 1
        )
    return page_of("RuleNames", names, names, limit)


def delete_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An unknown name is no error. Force matters only for AWS's own rules."""
    check_bus(call, params.get("EventBusName", BUS))
    with call.database.write() as connection:
        rule = event_rules.get(connection, params["Name"], lock=True)
        if rule is None:
            return {}
        if event_targets.count(connection, rule.name):
            raise invalid("Rule can't be deleted since it has targets.")
        event_rules.delete(connection, rule.name)
        tags.drop(connection, rule.arn)
    return {}


def enable_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    return _set_state(call, params, ENABLED)


def disable_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Pending deliveries continue."""
    return _set_state(call, params, DISABLED)


def existing_rule(connection: Connection, name: str, lock: bool = False) -> RuleRecord:
    """Raises AwsError."""
    rule = event_rules.get(connection, name, lock)
    if rule is None:
        raise no_rule(name)
    return rule


def check_pattern(text: str) -> None:
    """Raises AwsError."""
    try:
        read_pattern(text)
    except Invalid as error:
        raise bad_pattern(str(error)) from None


def _record(call: RequestContext, params: dict[str, Any]) -> RuleRecord:
    if "ScheduleExpression" in params:
        raise not_built("ScheduleExpression", "A rule has an EventPattern.")
    if not params.get("EventPattern"):
        raise invalid("Parameter(s) EventPattern or ScheduleExpression must be specified.")
    state = params.get("State", ENABLED)
    if state not in (ENABLED, DISABLED):
        raise not_built(f"State {state}", "It is ENABLED or DISABLED.")
    check_pattern(params["EventPattern"])
    if not is_text(params.get("Description", "")):
        raise invalid("Parameter Description is not valid. Reason: it has control characters.")
    return RuleRecord(
        name=params["Name"],
        arn=call.arns.event_rule(params["Name"]),
        state=state,
        event_pattern=params["EventPattern"],
        description=params.get("Description"),
        role_arn=params.get("RoleArn"),
        created_at=call.clock.now(),
    )


def _check_quota(connection: Connection, call: RequestContext) -> None:
    count = event_rules.count(connection)
    if count >= call.settings.max_event_rules:
        raise over_limit(
            "The requested resource exceeds the maximum number allowed: there are "
            f"{count} rules, as many as the setting max_event_rules allows."
        )


def _set_state(call: RequestContext, params: dict[str, Any], state: str) -> dict[str, Any]:
    check_bus(call, params.get("EventBusName", BUS))
    with call.database.write() as connection:
        if not event_rules.set_state(connection, params["Name"], state):
            raise no_rule(params["Name"])
    return {}


def _listed(rule: RuleRecord) -> dict[str, Any]:
    return {
        "Name": rule.name,
        "Arn": rule.arn,
        "EventPattern": rule.event_pattern,
        "State": rule.state,
        "Description": rule.description,
        "RoleArn": rule.role_arn,
        "EventBusName": BUS,
    }
