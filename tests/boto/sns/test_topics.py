"""Topics: made, described, tagged, deleted, and what is refused."""

import json
import uuid
from typing import Any

import pytest

from support.receiver import Receiver
from support.server import Server, eventually
from support.sns import ACCOUNT, code_of, confirmed, message_of, refusal


def test_topics(sns: Any) -> None:
    name = f"T_{uuid.uuid4().hex}"
    arn = sns.create_topic(Name=name, Attributes={"DisplayName": "d"})["TopicArn"]
    assert arn == f"arn:aws:sns:us-east-1:{ACCOUNT}:{name}"
    assert sns.create_topic(Name=name)["TopicArn"] == arn
    same = sns.create_topic(Name=name, Attributes={"DisplayName": "d"})
    assert same["TopicArn"] == arn
    other = {"DisplayName": "other"}
    assert code_of(sns.create_topic, Name=name, Attributes=other) == ("InvalidParameter", 400)
    sns.set_topic_attributes(TopicArn=arn, AttributeName="SignatureVersion", AttributeValue="2")
    told = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert told["TopicArn"] == arn
    assert told["Owner"] == ACCOUNT
    assert (told["DisplayName"], told["SignatureVersion"]) == ("d", "2")
    assert json.loads(told["EffectiveDeliveryPolicy"])["http"]["defaultHealthyRetryPolicy"] == {
        "minDelayTarget": 20,
        "maxDelayTarget": 20,
        "numRetries": 3,
        "numMaxDelayRetries": 0,
        "numNoDelayRetries": 0,
        "numMinDelayRetries": 0,
        "backoffFunction": "linear",
    }
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="")
    assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == ""
    sns.delete_topic(TopicArn=arn)
    sns.delete_topic(TopicArn=arn)
    assert code_of(sns.get_topic_attributes, TopicArn=arn) == ("NotFound", 404)


def test_the_policy_of_a_new_topic(sns: Any, topic: str) -> None:
    (statement,) = json.loads(sns.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"])[
        "Statement"
    ]
    assert statement["Action"] == [
        "SNS:GetTopicAttributes",
        "SNS:SetTopicAttributes",
        "SNS:AddPermission",
        "SNS:RemovePermission",
        "SNS:DeleteTopic",
        "SNS:Subscribe",
        "SNS:ListSubscriptionsByTopic",
        "SNS:Publish",
    ]


def test_tags(sns: Any, topic: str) -> None:
    sns.tag_resource(
        ResourceArn=topic, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]
    )
    sns.untag_resource(ResourceArn=topic, TagKeys=["b", "c"])
    assert sns.list_tags_for_resource(ResourceArn=topic)["Tags"] == [{"Key": "a", "Value": "1"}]
    many = [{"Key": f"k{n}", "Value": ""} for n in range(50)]
    assert message_of(sns.tag_resource, ResourceArn=topic, Tags=many) == (
        "Could not complete request: tag quota of per resource exceeded"
    )
    gone = {"ResourceArn": topic + "x"}
    assert code_of(sns.list_tags_for_resource, **gone) == ("ResourceNotFound", 404)


@pytest.mark.parametrize(
    "params",
    [
        {"Name": "a b"},
        {"Name": ""},
        {"Name": "x" * 257},
        {"Name": "topic.fifo", "Attributes": {"FifoTopic": "true"}},
        {"Name": "topic", "Attributes": {"FifoTopic": "true"}},
        {"Name": "topic", "Attributes": {"NoSuch": "x"}},
        {"Name": "topic", "Attributes": {"DisplayName": "x" * 101}},
        {"Name": "topic", "Attributes": {"SignatureVersion": "3"}},
        {"Name": "topic", "Attributes": {"Policy": "[]"}},
        {"Name": "topic", "Attributes": {"DeliveryPolicy": '{"http": {"x": 1}}'}},
        {"Name": "topic", "Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
    ],
)
def test_topics_that_cannot_be(sns: Any, params: dict[str, Any]) -> None:
    assert code_of(sns.create_topic, **params) == ("InvalidParameter", 400)


def test_a_deleted_topic_takes_its_subscriptions_along(
    sns: Any, receiver: Receiver, path: str
) -> None:
    topic = sns.create_topic(Name=f"t-{uuid.uuid4().hex}")["TopicArn"]
    arn = confirmed(sns, receiver, topic, path)
    sns.delete_topic(TopicArn=topic)
    assert code_of(sns.get_subscription_attributes, SubscriptionArn=arn) == ("NotFound", 404)
    listed = [one["SubscriptionArn"] for one in sns.list_subscriptions()["Subscriptions"]]
    assert arn not in listed


def test_only_links_need_no_signature(server: Server, topic: str) -> None:
    for query in ("Action=ListTopics", f"Action=DeleteTopic&TopicArn={topic}", "Action=Publish"):
        assert refusal(f"{server.url}/?{query}")[0] == 403
    assert refusal(f"{server.url}/", data=b"Action=ConfirmSubscription")[0] == 403


@pytest.mark.parametrize("second", ["Action", "action", "%41ction", "ACTION", "Action%20"])
def test_a_link_is_good_for_one_operation(
    server: Server, sns: Any, topic: str, second: str
) -> None:
    for link in ("ConfirmSubscription", "Unsubscribe"):
        for query in (
            f"Action={link}&{second}=DeleteTopic&TopicArn={topic}",
            f"{second}=DeleteTopic&Action={link}&TopicArn={topic}",
        ):
            assert refusal(f"{server.url}/?{query}") == (400, "InvalidQueryParameter")
    assert sns.get_topic_attributes(TopicArn=topic)["Attributes"]["TopicArn"] == topic


def test_what_is_not_built_is_refused_by_name(sns: Any, topic: str) -> None:
    refused = code_of(
        sns.add_permission,
        TopicArn=topic,
        Label="l",
        AWSAccountId=[ACCOUNT],
        ActionName=["Publish"],
    )
    assert refused == ("UnsupportedOperation", 400)


def test_the_key_is_its_owner_s_only(server: Server) -> None:
    key = server.home / "message-key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    eventually(lambda: b"PRIVATE KEY" in key.read_bytes())
