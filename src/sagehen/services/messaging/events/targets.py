"""Operations on rule targets: topics, queues, API destinations and, in Sagehen only, URLs."""

import re
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of
from sagehen.services.messaging.events import target_store as event_targets
from sagehen.services.messaging.events.buses import check_bus, limit_of, start_of_page
from sagehen.services.messaging.events.errors import invalid, not_built, over_limit
from sagehen.services.messaging.events.inputs import check_input
from sagehen.services.messaging.events.records import BUS, RuleRecord, TargetRecord
from sagehen.services.messaging.events.resource_store import EVENT_DESTINATIONS
from sagehen.services.messaging.events.rules import existing_rule
from sagehen.services.messaging.webhooks import new_secret, read_secret

__all__ = [
    "check_target",
    "is_destination",
    "is_webhook",
    "list_targets_by_rule",
    "put_targets",
    "remove_targets",
]

_ARN = re.compile(r"arn:aws[\w-]*:([a-z0-9-]+):[a-z0-9-]*:(\d{12})?:.+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
SECRET = "WebhookSecret"
"""header parameter that sets a webhook's signing secret"""
_OF_OTHERS = (
    "AppSyncParameters",
    "BatchParameters",
    "EcsParameters",
    "KinesisParameters",
    "RedshiftDataParameters",
    "RunCommandParameters",
    "SageMakerPipelineParameters",
    "SqsParameters",
)
_NOT_TO_SET = {
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
}


def check_target(call: RequestContext, target: dict[str, Any]) -> None:
    """Raises AwsError."""
    name = target["Id"]
    for member in _OF_OTHERS:
        if member in target:
            raise not_built(f"{member} of target {name}")
    if is_webhook(target):
        _check_url(target)
        _check_http(target)
    elif is_destination(target):
        _check_http(target)
    else:
        _check_arn(call, target)
        if "HttpParameters" in target:
            raise invalid(f"Target {name} has HttpParameters, which go with a URL only.")
    if "DeadLetterConfig" in target:
        _check_dead_letters(call, target)
    try:
        check_input(target)
    except Invalid as error:
        raise invalid(f"Parameters of target {name} are not valid. Reason: {error}.") from None


def is_webhook(target: dict[str, Any]) -> bool:
    return str(target["Arn"]).lower().startswith(("http://", "https://"))


def is_destination(target: dict[str, Any]) -> bool:
    """Accepts ARNs of other servers, too."""
    parts = str(target["Arn"]).split(":", 5)
    return parts[2:3] == ["events"] and parts[-1].startswith("api-destination/")


def _check_arn(call: RequestContext, target: dict[str, Any]) -> None:
    arn = target["Arn"]
    match = _ARN.fullmatch(arn)
    if match is None:
        raise invalid(
            f"Parameter {arn} is not valid. Reason: Provided Arn is not in correct format."
        )
    kind, resource = match[1], arn.rpartition(":")[2]
    if kind not in ("sns", "sqs"):
        raise not_built(
            f"targets of {kind} ({arn})",
            "A target is an SNS topic, an SQS queue, an API destination, or a URL that begins with "
            "http:// or https://.",
        )
    if resource.endswith(".fifo"):
        raise not_built(f"FIFO topics and queues ({arn})")
    expected = call.arns.sns(resource) if kind == "sns" else call.arns.sqs(resource)
    if arn != expected or not _NAME.fullmatch(resource):
        raise invalid(
            f"Parameter {arn} is not valid. Reason: it is not of this server, whose ARNs are such "
            f"as {getattr(call.arns, kind)('NAME')}."
        )


def _check_url(target: dict[str, Any]) -> None:
    url = target["Arn"]
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        raise invalid(f"Parameter {url} is not valid. Reason: it is not a URL.")


def _check_http(target: dict[str, Any]) -> None:
    http = target.get("HttpParameters", {})
    if "PathParameterValues" in http and is_webhook(target):
        raise not_built("PathParameterValues", "Write the path in the URL.")
    headers = http.get("HeaderParameters", {})
    for name in headers:
        if name.lower() in _NOT_TO_SET or (name.lower() == SECRET.lower() and name != SECRET):
            raise invalid(
                f"The header {name} of target {target['Id']} is set by the server: leave it out."
            )
    values = [
        *headers.values(),
        *http.get("QueryStringParameters", {}).values(),
        *http.get("PathParameterValues", []),
    ]
    if any(value.startswith("$.") for value in values):
        raise not_built("HttpParameters that are read from the event")
    if SECRET in headers and is_webhook(target):
        try:
            read_secret(headers[SECRET])
        except Invalid as error:
            raise invalid(f"{SECRET} of target {target['Id']}: {error}.") from None


def _check_dead_letters(call: RequestContext, target: dict[str, Any]) -> None:
    arn = target["DeadLetterConfig"].get("Arn", "")
    name = arn.rpartition(":")[2]
    if not _NAME.fullmatch(name) or arn != call.arns.sqs(name):
        raise invalid(
            f"Parameter DeadLetterConfig of target {target['Id']} is not valid. Reason: its Arn is "
            f"that of a standard queue of this server, such as {call.arns.sqs('NAME')}."
        )


MAX_TARGETS = 5
"""per rule"""


def put_targets(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Adds or replaces targets, all or none."""
    check_bus(call, params.get("EventBusName", BUS))
    targets = params["Targets"]
    if len({target["Id"] for target in targets}) < len(targets):
        raise invalid("Parameter Targets is not valid. Reason: an Id comes more than once.")
    for target in targets:
        check_target(call, target)
    with call.database.write() as connection:
        rule = existing_rule(connection, params["Rule"], lock=True)
        for target in targets:
            if is_destination(target) and not EVENT_DESTINATIONS.by_arn(connection, target["Arn"]):
                raise invalid(f"Parameter {target['Arn']} is not valid. Reason: it does not exist.")
            event_targets.put(connection, _record(connection, rule, target))
        if event_targets.count(connection, rule.name) > MAX_TARGETS:
            raise over_limit(
                "The requested resource exceeds the maximum number allowed: a rule has at most "
                f"{MAX_TARGETS} targets."
            )
    return {"FailedEntryCount": 0, "FailedEntries": []}


def remove_targets(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Removes targets and their pending HTTP deliveries; reports unknown ids."""
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


def list_targets_by_rule(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Webhooks include their signing secret."""
    check_bus(call, params.get("EventBusName", BUS))
    limit = limit_of(params)
    with call.database.read() as connection:
        rule = existing_rule(connection, params["Rule"])
        targets = event_targets.of_rule(connection, rule.name, start_of_page(params), limit + 1)
    listed = [_listed(target) for target in targets]
    return page_of("Targets", listed, [target.target_id for target in targets], limit)


def _record(connection: Connection, rule: RuleRecord, target: dict[str, Any]) -> TargetRecord:
    """Stores a webhook's secret apart; without a new secret, the old one stays."""
    definition, secret = dict(target), None
    if is_webhook(target):
        http = dict(definition.pop("HttpParameters", {}))
        headers = dict(http.pop("HeaderParameters", {}))
        secret = headers.pop(SECRET, None) or _current_secret(connection, rule, target)
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


def _current_secret(connection: Connection, rule: RuleRecord, target: dict[str, Any]) -> str:
    before = event_targets.get(connection, rule.name, target["Id"])
    is_same = before is not None and before.target_arn == target["Arn"]
    return (before.secret if before and is_same else None) or new_secret()


def _listed(target: TargetRecord) -> dict[str, Any]:
    if target.secret is None:
        return target.definition
    http = target.definition.get("HttpParameters", {})
    headers = {**http.get("HeaderParameters", {}), SECRET: target.secret}
    return {**target.definition, "HttpParameters": {**http, "HeaderParameters": headers}}
