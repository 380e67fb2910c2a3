"""Rules: put, listed by pages, tagged, and deleted only without targets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events import rules, target_store
from sagehen.services.messaging.events.records import TargetRecord
from sagehen.wire.errors import AwsError

PATTERN = '{"source": ["aws.sagemaker"]}'


def put(call: RequestContext, name: str, **params: Any) -> str:
    arn: str = rules.put_rule(call, {"Name": name, "EventPattern": PATTERN, **params})["RuleArn"]
    return arn


def test_a_rule_is_described_as_it_was_put(call: RequestContext) -> None:
    arn = put(call, "r", Description="d", State="DISABLED")
    described = rules.describe_rule(call, {"Name": "r"})
    assert (described["Arn"], described["State"]) == (arn, "DISABLED")
    assert (described["Description"], described["EventPattern"]) == ("d", PATTERN)
    rules.enable_rule(call, {"Name": "r"})
    assert rules.describe_rule(call, {"Name": "r"})["State"] == "ENABLED"


def test_rules_are_listed_by_pages(call: RequestContext) -> None:
    for name in ("b", "a", "c", "x"):
        put(call, name)
    first = rules.list_rules(call, {"Limit": 2})
    assert [rule["Name"] for rule in first["Rules"]] == ["a", "b"]
    second = rules.list_rules(call, {"Limit": 2, "NextToken": first["NextToken"]})
    assert [rule["Name"] for rule in second["Rules"]] == ["c", "x"]
    assert "NextToken" not in second
    assert [rule["Name"] for rule in rules.list_rules(call, {"NamePrefix": "x"})["Rules"]] == ["x"]
    with pytest.raises(AwsError, match="Invalid pagination token"):
        rules.list_rules(call, {"NextToken": "%"})


def test_a_rule_with_targets_is_not_deleted(call: RequestContext) -> None:
    put(call, "r")
    target = TargetRecord(
        rule_name="r", target_id="t", target_arn="https://host/", definition={"Id": "t"}
    )
    with call.database.write() as connection:
        target_store.put(connection, target)
    with pytest.raises(AwsError, match="since it has targets"):
        rules.delete_rule(call, {"Name": "r"})
    with call.database.write() as connection:
        target_store.remove(connection, rules.existing_rule(connection, "r"), ["t"])
    rules.delete_rule(call, {"Name": "r"})
    rules.delete_rule(call, {"Name": "r"})
    assert rules.list_rules(call, {})["Rules"] == []


def test_tags(call: RequestContext, code_of: Callable[[Callable[[], object]], str]) -> None:
    arn = put(call, "r", Tags=[{"Key": "a", "Value": "1"}])
    operations = rules.TAG_OPERATIONS
    operations.tag_resource(call, {"ResourceARN": arn, "Tags": [{"Key": "b", "Value": "2"}]})
    operations.untag_resource(call, {"ResourceARN": arn, "TagKeys": ["a", "none"]})
    listed = operations.list_tags(call, {"ResourceARN": arn})
    assert listed == {"Tags": [{"Key": "b", "Value": "2"}]}
    many = [{"Key": str(number), "Value": ""} for number in range(50)]
    twice = [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]
    for tags, code in ((many, "LimitExceededException"), (twice, "ValidationException")):
        params = {"ResourceARN": arn, "Tags": tags}
        assert code_of(lambda params=params: operations.tag_resource(call, params)) == code  # type: ignore[misc]
    assert operations.list_tags(call, {"ResourceARN": arn}) == listed
    missing = {"ResourceARN": f"{arn}x"}
    assert code_of(lambda: operations.list_tags(call, missing)) == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"ScheduleExpression": "rate(1 minute)"}, "ScheduleExpression"),
        ({"EventPattern": ""}, "must be specified"),
        ({"EventPattern": "{"}, "Event pattern is not valid"),
        ({"State": "OTHER"}, "State OTHER"),
        ({"Description": "\0"}, "control characters"),
        ({"EventBusName": "other"}, "Event bus other"),
    ],
)
def test_rules_that_are_refused(call: RequestContext, params: Any, message: str) -> None:
    with pytest.raises(AwsError, match=message):
        put(call, "r", **params)


def test_a_quota(call: RequestContext) -> None:
    settings = call.settings.model_copy(update={"max_event_rules": 1})
    call = dataclasses.replace(call, settings=settings)
    put(call, "a")
    put(call, "a")
    with pytest.raises(AwsError, match="max_event_rules"):
        put(call, "b")
