"""Members that are called without effect are accepted by a real server; those of SageMaker are
tested beside its operations."""

import copy
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sagehen.app.api.members import WITHOUT_EFFECT
from sagehen.wire.services import service
from support.members import insert_member, place_of
from support.server import Server

CALLS = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "unsupported.py"))
BUCKET, KEY, NAME = "without-effect", "key", "without-effect"
OBJECT = {"Bucket": BUCKET, "Key": KEY}
ARN = f"arn:aws:sqs:us-east-1:000000000000:{NAME}"
DATUM = {"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1.0}]}
QUERY = {
    "Id": "m1",
    "MetricStat": {"Metric": {"Namespace": "N", "MetricName": "m"}, "Period": 60, "Stat": "Sum"},
}
TIMES = {"StartTime": datetime(2026, 1, 1, tzinfo=UTC), "EndTime": datetime(2026, 1, 2, tzinfo=UTC)}
REQUESTS: dict[str, dict[str, dict[str, Any]]] = {
    "cloudwatch": {
        "GetMetricData": {**TIMES, "MetricDataQueries": [QUERY]},
        "PutMetricAlarm": CALLS["alarm"]("", "").parameters | {"EvaluationWindow": {}},
        "PutMetricData": DATUM,
    },
    "events": {
        "PutRule": {"Name": NAME, "EventPattern": '{"source": ["s"]}'},
        "PutTargets": {"Rule": NAME, "Targets": [{"Id": "1", "Arn": ARN}]},
        "RemoveTargets": {"Rule": NAME, "Ids": ["1"]},
        "DeleteRule": {"Name": "none"},
    },
    "iam": {
        "SimulatePrincipalPolicy": {
            "PolicySourceArn": "arn:aws:iam::000000000000:role/any",
            "ActionNames": ["s3:GetObject"],
        }
    },
    "s3": {
        "PutObject": {**OBJECT, "Body": b"x", "ServerSideEncryption": "aws:kms"},
        "DeleteObject": OBJECT | {"Key": "none"},
        "CopyObject": {"Bucket": BUCKET, "Key": "copy", "CopySource": f"{BUCKET}/{KEY}"},
        "ListObjectVersions": {"Bucket": BUCKET, "KeyMarker": "a"},
        "PutPublicAccessBlock": {"Bucket": BUCKET, "PublicAccessBlockConfiguration": {}},
    },
}
"""requests that succeed"""
NOT_CALLED = {"GetMetricDataInput.LabelOptions", "Grantee.Type"} | {
    f"CompletedPart.ChecksumXXHASH{kind}" for kind in ("64", "3", "128")
}
"""members that need a value or a resource of their own"""


@pytest.fixture(scope="module")
def prepared(server: Server) -> Server:
    server.client("sqs").create_queue(QueueName=NAME)
    server.client("s3").create_bucket(Bucket=BUCKET)
    server.client("s3").put_object(**OBJECT, Body=b"x")
    events = server.client("events")
    for operation in ("PutRule", "PutTargets"):
        events._make_api_call(operation, REQUESTS["events"][operation])
    return server


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        (name, listed)
        for name in REQUESTS
        for listed in WITHOUT_EFFECT[name]
        if listed not in NOT_CALLED
    ],
)
def test_a_member_without_effect_is_accepted(name: str, listed: str, prepared: Server) -> None:
    operation, path, _ = place_of(name, listed, REQUESTS[name])
    params = copy.deepcopy(REQUESTS[name][operation])
    root = service(name).operation_model(operation).input_shape
    insert_member(params, root, path.split("."))
    client = prepared.client(name, parameter_validation=False)
    response = client._make_api_call(operation, params)
    assert response["ResponseMetadata"]["HTTPStatusCode"] in (200, 204)
