"""What may be a target: a topic or a queue of this server, or a URL, Sagehen's own form."""

import re
from typing import Any
from urllib.parse import urlsplit

from sagehen.api.call import Call
from sagehen.api.eventbridge.refusals import invalid, not_built
from sagehen.domain.event_deliveries import SECRET
from sagehen.domain.event_inputs import check_input
from sagehen.domain.webhooks import read_secret
from sagehen.errors import Invalid

__all__ = ["check_target", "is_webhook"]

_ARN = re.compile(r"arn:aws[\w-]*:([a-z0-9-]+):[a-z0-9-]*:(\d{12})?:.+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
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


def check_target(call: Call, target: dict[str, Any]) -> None:
    """Refuse what cannot be sent to, or be filled in, or that would be passed over.

    Raises:
        AwsError: says which target, and why.
    """
    name = target["Id"]
    for member in _OF_OTHERS:
        if member in target:
            raise not_built(f"{member} of target {name}")
    if is_webhook(target):
        _check_url(target)
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
    """Whether its Arn is a URL."""
    return str(target["Arn"]).lower().startswith(("http://", "https://"))


def _check_arn(call: Call, target: dict[str, Any]) -> None:
    arn = target["Arn"]
    found = _ARN.fullmatch(arn)
    if found is None:
        raise invalid(
            f"Parameter {arn} is not valid. Reason: Provided Arn is not in correct format."
        )
    kind, resource = found[1], arn.rpartition(":")[2]
    if kind not in ("sns", "sqs"):
        raise not_built(
            f"targets of {kind} ({arn})",
            "A target is an SNS topic, an SQS queue, or a URL that begins with http:// or https://.",
        )
    if resource.endswith(".fifo"):
        raise not_built(f"FIFO topics and queues ({arn})")
    ours = call.arns.sns(resource) if kind == "sns" else call.arns.sqs(resource)
    if arn != ours or not _NAME.fullmatch(resource):
        raise invalid(
            f"Parameter {arn} is not valid. Reason: it is not of this server, whose ARNs are such "
            f"as {getattr(call.arns, kind)('NAME')}."
        )


def _check_url(target: dict[str, Any]) -> None:
    url = target["Arn"]
    try:
        parts = urlsplit(url)
        well = bool(parts.hostname) and parts.port != 0
    except ValueError:
        well = False
    if not well or not url.isascii() or not url.isprintable() or " " in url:
        raise invalid(f"Parameter {url} is not valid. Reason: it is no URL.")


def _check_http(target: dict[str, Any]) -> None:
    given = target.get("HttpParameters", {})
    if "PathParameterValues" in given:
        raise not_built("PathParameterValues", "Write the path in the URL.")
    headers = given.get("HeaderParameters", {})
    for name in headers:
        if name.lower() in _NOT_TO_SET:
            raise invalid(f"The header {name} of target {target['Id']} is not yours to set.")
    values = [*headers.values(), *given.get("QueryStringParameters", {}).values()]
    if any(value.startswith("$.") for value in values):
        raise not_built("HttpParameters that are read from the event")
    if SECRET in headers:
        try:
            read_secret(headers[SECRET])
        except Invalid as error:
            raise invalid(f"{SECRET} of target {target['Id']}: {error}.") from None


def _check_dead_letters(call: Call, target: dict[str, Any]) -> None:
    arn = target["DeadLetterConfig"].get("Arn", "")
    name = arn.rpartition(":")[2]
    if not _NAME.fullmatch(name) or arn != call.arns.sqs(name):
        raise invalid(
            f"Parameter DeadLetterConfig of target {target['Id']} is not valid. Reason: its Arn is "
            f"that of a standard queue of this server, such as {call.arns.sqs('NAME')}."
        )
