"""A message as ReceiveMessage answers it."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.sqs.digests import md5_of_attributes, md5_of_body
from sagehen.domain.notices import MessageAttribute
from sagehen.domain.queues import QueueMessage

__all__ = ["describe_message"]


def describe_message(
    call: Call, params: dict[str, Any], message: QueueMessage, receipt: str
) -> dict[str, Any]:
    """The message with those of its attributes that were asked for."""
    envelope = message.content.envelope
    body = message.body if envelope is None else call.seal(envelope)
    answer: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": receipt,
        "MD5OfBody": md5_of_body(body),
        "Body": body,
    }
    if system := _system_attributes(call, params, message):
        answer["Attributes"] = system
    if chosen := _chosen(params.get("MessageAttributeNames", ()), message.content.attributes):
        answer["MessageAttributes"] = {name: _attribute(one) for name, one in chosen.items()}
        answer["MD5OfMessageAttributes"] = md5_of_attributes(chosen)
    return answer


def _system_attributes(call: Call, params: dict[str, Any], message: QueueMessage) -> dict[str, str]:
    # AttributeNames is the older name of the same.
    wanted = {*params.get("AttributeNames", ()), *params.get("MessageSystemAttributeNames", ())}
    if not wanted:
        return {}
    known = {
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at),
        "ApproximateReceiveCount": str(message.receives),
        "SenderId": call.settings.account_id,
        "SentTimestamp": _milliseconds(message.sent_at),
        "AWSTraceHeader": message.content.trace_header,
        "DeadLetterQueueSourceArn": message.content.source_arn,
    }
    return {
        name: value
        for name, value in known.items()
        if value is not None and (name in wanted or "All" in wanted)
    }


def _chosen(
    wanted: list[str], attributes: dict[str, MessageAttribute]
) -> dict[str, MessageAttribute]:
    """By name, by a beginning such as `bar.*`, or all of them: `All`, `.*`."""
    if "All" in wanted or ".*" in wanted:
        return attributes
    beginnings = tuple(
        one.removesuffix("*").removesuffix(".") for one in wanted if one.endswith("*")
    )
    return {
        name: one
        for name, one in attributes.items()
        if name in wanted or (beginnings and name.startswith(beginnings))
    }


def _attribute(one: MessageAttribute) -> dict[str, Any]:
    if one.binary_value is not None:
        return {"DataType": one.data_type, "BinaryValue": one.binary_value}
    return {"DataType": one.data_type, "StringValue": one.string_value}


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
