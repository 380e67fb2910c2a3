"""PutTargets, RemoveTargets, ListTargetsByRule."""

from typing import Any

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.eventbridge.buses import check_bus
from sagehen.api.eventbridge.listing import after, limit_of, page_of
from sagehen.api.eventbridge.refusals import invalid, over_limit
from sagehen.api.eventbridge.rules import existing_rule
from sagehen.api.eventbridge.target_checks import check_target, is_webhook
from sagehen.domain.event_deliveries import SECRET
from sagehen.domain.events import BUS, RuleRecord, TargetRecord
from sagehen.domain.webhooks import new_secret
from sagehen.store import event_targets

__all__ = ["list_targets_by_rule", "put_targets", "remove_targets"]

MOST_TARGETS = 5
"""Of one rule."""


def put_targets(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Add targets to a rule, or put them in place of those of their ids: all of them or none."""
    check_bus(call, params.get("EventBusName", BUS))
    given = params["Targets"]
    if len({target["Id"] for target in given}) < len(given):
        raise invalid("Parameter Targets is not valid. Reason: an Id comes more than once.")
    for target in given:
        check_target(call, target)
    with call.database.write() as connection:
        rule = existing_rule(connection, params["Rule"], lock=True)
        for target in given:
            event_targets.put(connection, _record(connection, rule, target))
        if event_targets.count(connection, rule.name) > MOST_TARGETS:
            raise over_limit(
                "The requested resource exceeds the maximum number allowed: a rule has at most "
                f"{MOST_TARGETS} targets."
            )
    return {"FailedEntryCount": 0, "FailedEntries": []}


def remove_targets(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Drop targets of a rule, with what is on its way to webhooks; those not there are told."""
    check_bus(call, params.get("EventBusName", BUS))
    with call.database.write() as connection:
        rule = existing_rule(connection, params["Rule"], lock=True)
        missing = event_targets.remove(connection, rule, params["Ids"])
    failed = [
        {
            "TargetId": target_id,
            "ErrorCode": "ResourceNotFoundException",
            "ErrorMessage": f"Rule {rule.name} does not have a target {target_id}.",
        }
        for target_id in missing
    ]
    return {"FailedEntryCount": len(failed), "FailedEntries": failed}


def list_targets_by_rule(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of a rule's targets; webhooks with the secret that they sign by."""
    check_bus(call, params.get("EventBusName", BUS))
    limit = limit_of(params)
    with call.database.read() as connection:
        rule = existing_rule(connection, params["Rule"])
        found = event_targets.of_rule(connection, rule.name, after(params), limit + 1)
    listed = [_listed(one) for one in found]
    return page_of("Targets", listed, [one.target_id for one in found], limit)


def _record(connection: Connection, rule: RuleRecord, target: dict[str, Any]) -> TargetRecord:
    """The target as it is kept: a webhook's secret apart, and as before where none is given."""
    definition, secret = dict(target), None
    if is_webhook(target):
        http = dict(definition.pop("HttpParameters", {}))
        headers = dict(http.pop("HeaderParameters", {}))
        secret = headers.pop(SECRET, None) or _kept_secret(connection, rule, target)
        if headers:
            http["HeaderParameters"] = headers
        if http:
            definition["HttpParameters"] = http
    return TargetRecord(
        rule_name=rule.name,
        target_id=target["Id"],
        target_arn=target["Arn"],
        definition=definition,
        secret=secret,
    )


def _kept_secret(connection: Connection, rule: RuleRecord, target: dict[str, Any]) -> str:
    before = event_targets.get(connection, rule.name, target["Id"])
    same = before is not None and before.target_arn == target["Arn"]
    return (before.secret if before and same else None) or new_secret()


def _listed(target: TargetRecord) -> dict[str, Any]:
    if target.secret is None:
        return target.definition
    http = target.definition.get("HttpParameters", {})
    headers = {**http.get("HeaderParameters", {}), SECRET: target.secret}
    return {**target.definition, "HttpParameters": {**http, "HeaderParameters": headers}}
