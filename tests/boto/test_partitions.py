"""A server in a region of China: every ARN that it gives out, it takes."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from support.server import Server

REGION = "cn-north-1"
HERE = f"{REGION}:000000000000"
CONTAINER = {"Image": "683313688378.dkr.ecr.cn-north-1.amazonaws.com.cn/sagemaker-xgboost:1.7-1"}


def subscribed(server: Server, partition: str) -> None:
    """A topic, a queue that subscribes it, a rule and a model: all ARNs given out are taken."""
    sns, sqs, events, sagemaker = (
        server.client(service, REGION) for service in ("sns", "sqs", "events", "sagemaker")
    )
    topic = sns.create_topic(Name="t")["TopicArn"]
    assert topic == f"arn:{partition}:sns:{HERE}:t"
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    assert told["QueueArn"] == f"arn:{partition}:sqs:{HERE}:q"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=told["QueueArn"])
    sns.publish(TopicArn=topic, Message="m")
    (got,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert topic in got["Body"]
    rule = events.put_rule(Name="r", EventPattern='{"source": ["s"]}')["RuleArn"]
    assert rule == f"arn:{partition}:events:{HERE}:rule/r"
    targets = [{"Id": "1", "Arn": topic}, {"Id": "2", "Arn": told["QueueArn"]}]
    assert events.put_targets(Rule="r", Targets=targets)["FailedEntryCount"] == 0
    role = f"arn:{partition}:iam::000000000000:role/r"
    model = {"PrimaryContainer": CONTAINER, "ExecutionRoleArn": role}
    arn = sagemaker.create_model(ModelName="m", **model)["ModelArn"]
    assert arn == f"arn:{partition}:sagemaker:{HERE}:model/m"
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "k", "Value": "v"}])
    who = server.client("sts", REGION).get_caller_identity()["Arn"]
    assert who.startswith(f"arn:{partition}:sts::000000000000:assumed-role/")


def test_arns_of_china(make_server: Callable[..., Server]) -> None:
    server = make_server(region=REGION)
    subscribed(server, "aws-cn")
    with pytest.raises(ClientError, match="Topic does not exist"):
        server.client("sns", REGION).publish(TopicArn=f"arn:aws:sns:{HERE}:t", Message="m")
