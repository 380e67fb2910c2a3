"""The SNS notice of a request's end: SageMaker's JSON, key for key."""

import base64
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from sagehen.services.messaging.sns.records import Notice
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)

__all__ = ["MAX_BODY_BYTES", "notice_of", "wants_body"]

MAX_BODY_BYTES = 128 * 1024
"""Larger responses are not in notices."""

SUCCESS = "SUCCESS_NOTIFICATION_TOPIC"
ERROR = "ERROR_NOTIFICATION_TOPIC"

_NAMES = uuid.UUID("5a9e4e11-0f5a-4a53-9d52-7a0c1b5d6a42")
"""Arbitrary, but must never change."""


def wants_body(queued: QueuedRequest, success: bool) -> bool:
    return (SUCCESS if success else ERROR) in queued.request.output.include_response_in


def notice_of(
    queued: QueuedRequest, outcome: AsyncOutcome, body: bytes | None, region: str, now: float
) -> Notice | None:
    """Returns the notice of a request's end; None if it has no topic.

    The same end always has the same id, so that receivers can drop duplicates.

    Args:
        now: seconds since the epoch.
    """
    success = outcome.state is AsyncState.SUCCEEDED
    output = queued.request.output
    topic = output.success_topic if success else output.error_topic
    if topic is None:
        return None
    message = _message(queued, outcome, body, region, now)
    drive = f"/{queued.redrives}" if queued.redrives else ""
    return Notice(
        message_id=str(uuid.uuid5(_NAMES, queued.request.request_id + drive)),
        topic_arn=topic,
        message=msgspec.json.encode(message).decode(),
        published_at=now,
    )


def _message(
    queued: QueuedRequest, outcome: AsyncOutcome, body: bytes | None, region: str, now: float
) -> dict[str, Any]:
    request = queued.request
    success = outcome.state is AsyncState.SUCCEEDED
    message: dict[str, Any] = {
        "awsRegion": region,
        "eventTime": _time(now),
        "receivedTime": _time(request.received_at),
        "invocationStatus": "Completed" if success else "Failed",
        "failureReason": None if success else outcome.failure_reason,
        "requestParameters": _present(
            accept=request.accept if success else None,
            contentType=request.content_type,
            endpointName=request.endpoint_name,
            inputLocation=request.input_location,
        ),
    }
    if outcome.location is not None:
        kind = "outputLocation" if success else "failureLocation"
        response = {"contentType": outcome.content_type, kind: outcome.location}
        message["responseParameters"] = _present(**response)
        # Consumers look for it in both places.
        message["failureLocation"] = None if success else outcome.location
    if body is not None and len(body) <= MAX_BODY_BYTES and wants_body(queued, success):
        message["responseBody"] = _body(body, success)
    message["inferenceId"] = request.inference_id
    message |= {
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }
    return _present(**message)


def _body(body: bytes, success: bool) -> dict[str, str]:
    if not success:
        return {
            "content": body.decode("utf-8", "replace"),
            "message": "This is the response body. See the endpoint's logs for more.",
        }
    return {
        "content": base64.b64encode(body).decode(),
        "message": "This is the response body, as it is also at the output location.",
        "encoding": "BASE64",
    }


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _time(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"
