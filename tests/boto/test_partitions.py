"""A server in a region of China: its ARNs, and those of a home that had others before."""

from collections.abc import Callable
from typing import Any

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
    if not sagemaker.list_models(NameContains="m")["Models"]:
        sagemaker.create_model(ModelName="m", **model)
    arn = sagemaker.describe_model(ModelName="m")["ModelArn"]
    assert arn == f"arn:{partition}:sagemaker:{HERE}:model/m"
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "k", "Value": "v"}])
    who = server.client("sts", REGION).get_caller_identity()["Arn"]
    assert who.startswith(f"arn:{partition}:sts::000000000000:assumed-role/")


def emptied(server: Server, partition: str) -> None:
    sns, events = server.client("sns", REGION), server.client("events", REGION)
    sns.delete_topic(TopicArn=f"arn:{partition}:sns:{HERE}:t")
    events.remove_targets(Rule="r", Ids=["1", "2"])
    events.delete_rule(Name="r")
    server.client("sqs", REGION).delete_queue(QueueUrl=f"{server.url}/000000000000/q")
    server.client("sagemaker", REGION).delete_model(ModelName="m")


def restarted(server: Server) -> None:
    server.stop()
    server.start()


def test_arns_of_china(make_server: Callable[..., Server]) -> None:
    older: dict[str, Any] = {"region": REGION, "partition": "aws"}
    server = make_server(**older)
    subscribed(server, "aws")
    del server.settings["SAGEHEN_PARTITION"]
    restarted(server)
    subscribed(server, "aws")  # An existing home keeps its ARNs.
    emptied(server, "aws")
    restarted(server)
    subscribed(server, "aws-cn")
    restarted(server)
    subscribed(server, "aws-cn")
    with pytest.raises(ClientError, match="Topic does not exist"):
        server.client("sns", REGION).publish(TopicArn=f"arn:aws:sns:{HERE}:t", Message="m")
