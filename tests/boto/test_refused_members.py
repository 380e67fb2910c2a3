"""Members that are called refused are refused by name, by a real server."""

import copy
import runpy
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagehen.app.api.members import REFUSED
from sagehen.wire.services import service
from support.members import insert_member, place_of
from support.server import Server

CALLS = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "unsupported.py"))
EVENT = {"Source": "s", "DetailType": "d", "Detail": "{}"}
SCALING = {
    "PolicyName": "p",
    "PolicyType": "TargetTrackingScaling",
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/unsupported/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
TRACKING = {
    "TargetValue": 1.0,
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
    },
}
REQUESTS: dict[str, dict[str, dict[str, Any]]] = {
    "application-autoscaling": {
        "PutScalingPolicy": {**SCALING, "TargetTrackingScalingPolicyConfiguration": TRACKING}
    },
    "cloudwatch": {
        "PutMetricAlarm": CALLS["alarm"]("", "").parameters,
        "PutMetricData": {"Namespace": "N"},
    },
    "events": {
        "CreateConnection": CALLS["connection"]("", "").parameters,
        "PutEvents": {"Entries": [EVENT]},
        "PutRule": {"Name": "unsupported"},
        "PutTargets": CALLS["event_target"]("", "").parameters,
    },
    "s3": {
        "PutObject": CALLS["put"]("", "").parameters,
        "DeleteObject": {"Bucket": "unsupported", "Key": "other"},
        "CreateBucket": {"Bucket": "other"},
        "PutBucketAcl": {
            "Bucket": "unsupported",
            "AccessControlPolicy": {
                "Owner": {"ID": "x"},
                "Grants": [{"Grantee": {"Type": "CanonicalUser"}, "Permission": "READ"}],
            },
        },
    },
    "sagemaker": {
        "CreateModel": CALLS["source"]("", "").parameters,
        "CreateEndpointConfig": CALLS["config"]("", "").parameters,
        "UpdateEndpoint": CALLS["update"]("", "", **CALLS["traffic"]("ALL_AT_ONCE")).parameters,
        "CreateTrainingJob": CALLS["channel"]("", "", S3DataSource=CALLS["of_s3"]()).parameters,
    },
    "sagemaker-runtime": {"InvokeEndpoint": CALLS["invoke"]("", "").parameters},
    "sqs": {"ReceiveMessage": {"QueueUrl": "http://127.0.0.1/000000000000/unsupported"}},
    "sns": {"CreateTopic": {"Name": "other"}, "Publish": {"Message": "m"}},
}
"""requests that would succeed, or fail for lack of a resource only"""
OTHER_WORDS = {
    "BypassGovernanceRetention": "x-amz-bypass-governance-retention is only applicable",
    "EmailAddress": "grants are not those of a canned acl",
    "EndpointId": "aws4-ecdsa-p256-sha256",
    "OAuthParameters": "no other credentials",
    "InferenceComponentName": "inference component",
    "PredictiveScalingPolicyConfiguration": "predictivescaling",
    "VariantInstanceProvisionTimeoutInSeconds": "instancepools",
}
"""what the error says instead of the member's name"""
CALLED = {call.names for calls in CALLS["UNSUPPORTED"].values() for call in calls}
"""what tests/docs/test_not_supported.py calls"""


@pytest.fixture(scope="module")
def prepared(server: Server) -> Server:
    server.client("sqs").create_queue(QueueName="unsupported")
    s3 = server.client("s3")
    s3.create_bucket(Bucket="unsupported", ObjectOwnership="ObjectWriter")
    s3.put_object(Bucket="unsupported", Key="key", Body=b"x")
    return server


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        (name, listed)
        for name in REFUSED
        for listed in REFUSED[name]
        if not {member := listed.partition(".")[2], OTHER_WORDS.get(member)} & CALLED
    ],
)
def test_a_member_called_refused_is_refused_by_name(
    name: str, listed: str, prepared: Server
) -> None:
    operation, path, shape = place_of(name, listed, REQUESTS[name])
    params = copy.deepcopy(REQUESTS[name][operation])
    root = service(name).operation_model(operation).input_shape
    insert_member(params, root, path.split("."))
    client = prepared.client(name, parameter_validation=False)
    with pytest.raises(ClientError) as refused:
        client._make_api_call(operation, params)
    message = refused.value.response["Error"]["Message"].lower()
    member = listed.partition(".")[2]
    words = OTHER_WORDS.get(member, member).lower()
    assert "validation error" not in message
    header = shape.serialization.get("name", member).lower()
    assert words in message or f"header {header}" in message
