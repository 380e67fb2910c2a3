"""Topics: made once, listed by pages, tagged, and no more than there may be."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sns import topic_store, topics
from sagehen.wire.errors import AwsError


def create(call: RequestContext, name: str = "t", **params: Any) -> str:
    return str(topics.create_topic(call, {"Name": name, **params})["TopicArn"])


def attributes(call: RequestContext, arn: str) -> dict[str, str]:
    found: dict[str, str] = topics.get_topic_attributes(call, {"TopicArn": arn})["Attributes"]
    return found


def test_the_same_topic_is_made_once(call: RequestContext) -> None:
    arn = create(call, Attributes={"DisplayName": "d"}, Tags=[{"Key": "k", "Value": "v"}])
    assert create(call, Attributes={"DisplayName": "d"}) == arn
    with pytest.raises(AwsError, match="already exists with different attributes"):
        create(call, Attributes={"DisplayName": "other"})
    with pytest.raises(AwsError, match="already exists with different tags"):
        create(call, Tags=[{"Key": "k", "Value": "other"}])
    topics.delete_topic(call, {"TopicArn": arn})
    topics.delete_topic(call, {"TopicArn": arn})
    assert topics.list_topics(call, {}) == {"Topics": []}


def test_an_empty_value_unsets_an_attribute(call: RequestContext) -> None:
    arn = create(call, Attributes={"DisplayName": "d"})
    change = {"TopicArn": arn, "AttributeName": "DisplayName"}
    topics.set_topic_attributes(call, {**change, "AttributeValue": "e"})
    assert attributes(call, arn)["DisplayName"] == "e"
    topics.set_topic_attributes(call, change)
    assert attributes(call, arn)["DisplayName"] == ""
    statement = json.loads(attributes(call, arn)["Policy"])["Statement"][0]
    assert statement["Resource"] == arn


def test_attributes_of_an_earlier_version_do_not_stop_a_change(call: RequestContext) -> None:
    arn = create(call)
    with call.database.write() as connection:
        earlier = {"FifoTopic": "false", "DisplayName": "two\nlines"}
        topic_store.set_attributes(connection, arn, earlier)
    change = {"TopicArn": arn, "AttributeName": "SignatureVersion", "AttributeValue": "2"}
    topics.set_topic_attributes(call, change)
    assert attributes(call, arn)["SignatureVersion"] == "2"
    with pytest.raises(AwsError, match="FifoTopic"):
        topics.set_topic_attributes(call, {**change, "AttributeName": "FifoTopic"})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"Name": "t.fifo"}, "FIFO topics are not implemented"),
        ({"Name": "t", "Attributes": {"FifoTopic": "true"}}, "FIFO"),
        ({"Name": "a b"}, "Topic Name"),
        ({"Name": "t", "DataProtectionPolicy": "{}"}, "DataProtectionPolicy"),
        ({"Name": "t", "Attributes": {"Other": "x"}}, "Sagehen does not have Other"),
        ({"Name": "t", "Tags": [{"Key": "k", "Value": ""}] * 2}, "parameter: Duplicated keys"),
    ],
)
def test_topics_that_are_refused(call: RequestContext, params: Any, message: str) -> None:
    with pytest.raises(AwsError, match=message):
        topics.create_topic(call, params)


def test_topics_are_listed_by_pages(call: RequestContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PAGE_SIZE", 2)
    arns = [create(call, name) for name in "abc"]
    page = topics.list_topics(call, {})
    rest = topics.list_topics(call, {"NextToken": page["NextToken"]})
    assert [one["TopicArn"] for one in page["Topics"] + rest["Topics"]] == arns
    assert "NextToken" not in rest
    with pytest.raises(AwsError, match="NextToken"):
        topics.list_topics(call, {"NextToken": "bm8="})


def test_a_quota(call: RequestContext) -> None:
    settings = call.settings.model_copy(update={"max_topics": 1})
    call = dataclasses.replace(call, settings=settings)
    create(call, "a")
    with pytest.raises(AwsError, match="max_topics"):
        create(call, "b")


def test_tags(call: RequestContext, code_of: Callable[[Callable[[], object]], str]) -> None:
    arn, operations = create(call), topics.TAG_OPERATIONS
    tags = [{"Key": str(number), "Value": ""} for number in range(50)]
    operations.tag_resource(call, {"ResourceArn": arn, "Tags": tags})
    more = {"ResourceArn": arn, "Tags": [{"Key": "more", "Value": ""}]}
    assert code_of(lambda: operations.tag_resource(call, more)) == "TagLimitExceeded"
    operations.untag_resource(call, {"ResourceArn": arn, "TagKeys": ["0"]})
    assert len(operations.list_tags(call, {"ResourceArn": arn})["Tags"]) == 49
    missing = {"ResourceArn": f"{arn}x"}
    assert code_of(lambda: operations.list_tags(call, missing)) == "ResourceNotFound"


@pytest.mark.parametrize("arn", ["t", "arn:aws:sns", "arn:aws:sns:us-east-1:0:t"])
def test_what_is_no_arn(call: RequestContext, arn: str) -> None:
    with pytest.raises(AwsError, match="TopicArn"):
        attributes(call, arn)
