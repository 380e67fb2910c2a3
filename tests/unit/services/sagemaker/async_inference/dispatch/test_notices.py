"""What is told: SageMaker's JSON, byte for byte."""

import base64
import json

import pytest

from sagehen.services.sagemaker.async_inference.dispatch.notices import (
    MAX_BODY_BYTES,
    notice_of,
)
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    OutputTarget,
    QueuedRequest,
)

BOTH = ("SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC")


def queued(include: tuple[str, ...] = (), redrives: int = 0, **fields) -> QueuedRequest:
    output = OutputTarget(
        location="s3://out/p/6c0f.out",
        failure_location="s3://out/p/6c0f-error.out",
        success_topic="arn:ok",
        error_topic="arn:bad",
        include_response_in=include,
    )
    defaults = {
        "request_id": "6c0f",
        "inference_id": "f3a1",
        "endpoint_name": "demo",
        "received_at": 1935655198.1,
        "expires_at": 0.0,
        "timeout_seconds": 1.0,
        "input_location": "s3://in/a.csv",
        "content_type": "text/csv",
        "accept": "application/json",
        "output": output,
    }
    request = AsyncRequest(**defaults | fields)
    return QueuedRequest(
        sequence=1, request=request, state=AsyncState.LEASED, attempt=1, redrives=redrives
    )


SUCCESS = AsyncOutcome(
    state=AsyncState.SUCCEEDED, content_type="application/json", location="s3://out/p/6c0f.out"
)
FAILURE = AsyncOutcome(
    state=AsyncState.FAILED, failure_reason="ClientError: Received client error."
)
WITH_OBJECT = AsyncOutcome(
    state=AsyncState.FAILED,
    failure_reason="ClientError: no",
    content_type="text/plain",
    location="s3://out/p/6c0f-error.out",
)
NOW = 1935655207.412


def message(outcome: AsyncOutcome, body: bytes | None = None, **fields) -> str:
    notice = notice_of(queued(**fields), outcome, body, "eu-west-1", NOW)
    assert notice is not None
    return notice.message


def test_a_success() -> None:
    assert message(SUCCESS, b"[1]") == (
        '{"awsRegion":"eu-west-1","eventTime":"2031-05-04T10:00:07.412Z",'
        '"receivedTime":"2031-05-04T09:59:58.100Z","invocationStatus":"Completed",'
        '"requestParameters":{"accept":"application/json","contentType":"text/csv",'
        '"endpointName":"demo","inputLocation":"s3://in/a.csv"},'
        '"responseParameters":{"contentType":"application/json",'
        '"outputLocation":"s3://out/p/6c0f.out"},"inferenceId":"f3a1","eventVersion":"1.0",'
        '"eventSource":"aws:sagemaker","eventName":"InferenceResult"}'
    )


def test_a_failure_without_an_object() -> None:
    assert message(FAILURE, b"said") == (
        '{"awsRegion":"eu-west-1","eventTime":"2031-05-04T10:00:07.412Z",'
        '"receivedTime":"2031-05-04T09:59:58.100Z","invocationStatus":"Failed",'
        '"failureReason":"ClientError: Received client error.",'
        '"requestParameters":{"contentType":"text/csv","endpointName":"demo",'
        '"inputLocation":"s3://in/a.csv"},"inferenceId":"f3a1","eventVersion":"1.0",'
        '"eventSource":"aws:sagemaker","eventName":"InferenceResult"}'
    )


def test_a_failure_tells_its_object_in_either_place() -> None:
    told = json.loads(message(WITH_OBJECT))
    assert told["failureLocation"] == "s3://out/p/6c0f-error.out"
    assert told["responseParameters"]["failureLocation"] == "s3://out/p/6c0f-error.out"


def test_what_was_not_given_is_left_out() -> None:
    told = json.loads(message(SUCCESS, input_location=None, content_type=None, accept=None))
    assert told["requestParameters"] == {"endpointName": "demo"}


def test_the_response_goes_along_where_that_is_wanted() -> None:
    told = json.loads(message(SUCCESS, b"\x00\xff", include=BOTH))
    assert base64.b64decode(told["responseBody"]["content"]) == b"\x00\xff"
    assert told["responseBody"]["encoding"] == "BASE64"
    failed = json.loads(message(WITH_OBJECT, b"bad row", include=BOTH))
    assert failed["responseBody"]["content"] == "bad row"
    assert "encoding" not in failed["responseBody"]
    keys = list(told)
    assert keys[keys.index("responseBody") - 1] == "responseParameters"


@pytest.mark.parametrize(
    ("body", "include", "there"),
    [
        (b"x" * MAX_BODY_BYTES, BOTH, True),
        (b"x" * (MAX_BODY_BYTES + 1), BOTH, False),
        (None, BOTH, False),
        (b"x", BOTH[1:], False),
    ],
)
def test_no_response_that_is_too_large_or_not_wanted(body, include, there) -> None:
    assert ("responseBody" in json.loads(message(SUCCESS, body, include=include))) is there


def test_the_same_end_has_the_same_id() -> None:
    def id_of(**fields) -> str:
        notice = notice_of(queued(**fields), SUCCESS, None, "r", NOW)
        assert notice is not None
        return notice.message_id

    assert id_of() == id_of()
    assert len({id_of(), id_of(request_id="other"), id_of(redrives=1), id_of(redrives=2)}) == 4


def test_nobody_to_tell() -> None:
    output = OutputTarget(location="s3://out/x", error_topic="arn:bad")
    assert notice_of(queued(output=output), SUCCESS, None, "r", NOW) is None
    assert notice_of(queued(output=output), FAILURE, None, "r", NOW) is not None
