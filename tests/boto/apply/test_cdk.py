"""A template that AWS CDK has synthesised: an endpoint with a role and a scalable target, and a
topic that feeds a queue.

Made with aws-cdk-lib 2.276.0 by `new cdk.App({ analyticsReporting: true })`, `iam.Role`,
`Bucket.grantRead`, `CfnModel`, `CfnEndpointConfig`, `CfnEndpoint`, `ScalableTarget` with
`scaleToTrackMetric`, and `sns.Topic` and `sqs.Queue` with `enforceSSL`, `addSubscription` and a
dead-letter queue.
"""

import json
from pathlib import Path

import pytest

from support.deploy import Deployer

TEMPLATE = Path(__file__).with_name("cdk_house.json").read_text()
ROLES_AND_POLICIES = {
    "IAM::Role": 2,
    "IAM::Policy": 1,
    "SNS::TopicPolicy": 1,
    "SQS::QueuePolicy": 1,
}


@pytest.fixture
def printed(stack, server):
    Deployer(server).upload("house/model.tar.gz")
    stack.file = stack.file.with_name(f"{stack.name}.template.json")  # as CDK names it
    return words(stack.apply(TEMPLATE))


def words(printed):
    """Without the line breaks of the terminal."""
    return " ".join(printed.split())


def test_a_template_of_cdk_is_applied_and_then_there_is_nothing_to_do(stack, server, printed):
    name = printed.rpartition("EndpointName ")[2].strip()
    answer = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body="[1]"
    )
    assert answer["Body"].read() == b"[2.0]"
    described = server.client("application-autoscaling").describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[f"endpoint/{name}/variant/main"]
    )
    (target,) = described["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 2)
    sns, sqs = server.client("sns"), server.client("sqs")
    (topic,) = [
        listed["TopicArn"]
        for listed in sns.list_topics()["Topics"]
        if f":{stack.name}-" in listed["TopicArn"]
    ]
    sns.publish(TopicArn=topic, Message="hello")
    (queue,) = sqs.list_queues(QueueNamePrefix=f"{stack.name}-Results")["QueueUrls"]
    received = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
    assert [message["Body"] for message in received] == ["hello"]
    assert "Nothing to do." in stack.apply()
    deleted = words(stack.delete())
    for kind, count in ROLES_AND_POLICIES.items():
        assert deleted.count(f"Deleting AWS::{kind} ") == count


def test_what_has_no_effect_is_said(stack, printed):
    assert (
        "Skipped, as they only concern CDK's own bootstrap and statistics: the parameter "
        "BootstrapVersion, AWS::CDK::Metadata CDKMetadata, the rule CheckBootstrapVersion."
    ) in printed
    for kind, count in ROLES_AND_POLICIES.items():
        lines = [line for line in printed.split(" + ") if line.startswith(f"AWS::{kind} ")]
        assert len(lines) == count
        assert all("stored without effect" in line for line in lines)
    changed = json.loads(TEMPLATE)
    statement = changed["Resources"]["ResultsPolicy9F4743DA"]["Properties"]["PolicyDocument"]
    statement["Statement"][1]["Action"] = "sqs:*"
    again = words(stack.apply(json.dumps(changed), "--dry-run", status=3))
    assert 'PolicyDocument.Statement[1].Action: "sqs:SendMessage" -> "sqs:*"' in again
    assert "Plan: 1 to change." in again
