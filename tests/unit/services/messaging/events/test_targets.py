"""Targets of rules: what may be one, and where the secret of a webhook is kept."""

from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events import target_store
from sagehen.services.messaging.events.rules import put_rule
from sagehen.services.messaging.events.targets import (
    check_target,
    list_targets_by_rule,
    put_targets,
    remove_targets,
)
from sagehen.services.messaging.webhooks import new_secret
from sagehen.wire.errors import AwsError

QUEUE = "arn:aws:sqs:us-east-1:000000000000:q"


@pytest.fixture
def rule(call: RequestContext) -> str:
    put_rule(call, {"Name": "r", "EventPattern": '{"source": ["x"]}'})
    return "r"


def put(call: RequestContext, *targets: dict[str, Any]) -> dict[str, Any]:
    return put_targets(call, {"Rule": "r", "Targets": list(targets)})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"Arn": "nonsense"}, "not in correct format"),
        ({"Arn": "arn:aws:lambda:us-east-1:000000000000:function:f"}, "targets of lambda"),
        ({"Arn": f"{QUEUE}.fifo"}, "FIFO"),
        ({"Arn": "arn:aws:sqs:us-east-1:111111111111:q"}, "not of this server"),
        ({"Arn": QUEUE, "HttpParameters": {}}, "go with a URL only"),
        ({"Arn": QUEUE, "SqsParameters": {}}, "SqsParameters"),
        ({"Arn": QUEUE, "DeadLetterConfig": {"Arn": "x"}}, "standard queue of this server"),
        ({"Arn": QUEUE, "Input": "{}", "InputPath": "$"}, "Only one of"),
        ({"Arn": "http://"}, "it is not a URL"),
        (
            {"Arn": "http://h/", "HttpParameters": {"HeaderParameters": {"Host": "x"}}},
            "Host of target t is set by the server",
        ),
        (
            {"Arn": "http://h/", "HttpParameters": {"HeaderParameters": {"webhooksecret": "x"}}},
            "set by the server",
        ),
        (
            {"Arn": "http://h/", "HttpParameters": {"QueryStringParameters": {"q": "$.id"}}},
            "read from the event",
        ),
    ],
)
def test_targets_that_are_refused(
    call: RequestContext, target: dict[str, Any], message: str
) -> None:
    with pytest.raises(AwsError, match=message):
        check_target(call, {"Id": "t", **target})


def test_a_webhook_keeps_its_secret_apart(call: RequestContext, rule: str) -> None:
    put(call, {"Id": "t", "Arn": "https://host/"})
    with call.database.read() as connection:
        record = target_store.get(connection, rule, "t")
    assert record is not None
    assert record.secret is not None
    assert record.secret not in str(record.definition)
    (listed,) = list_targets_by_rule(call, {"Rule": rule})["Targets"]
    headers = listed["HttpParameters"]["HeaderParameters"]
    assert headers == {"WebhookSecret": record.secret}


def test_a_secret_stays_until_there_is_another(call: RequestContext, rule: str) -> None:
    def secret() -> str:
        (listed,) = list_targets_by_rule(call, {"Rule": rule})["Targets"]
        return str(listed["HttpParameters"]["HeaderParameters"]["WebhookSecret"])

    put(call, {"Id": "t", "Arn": "https://host/"})
    first = secret()
    put(call, {"Id": "t", "Arn": "https://host/", "Input": "{}"})
    assert secret() == first
    own = new_secret()
    http = {"HeaderParameters": {"WebhookSecret": own}}
    put(call, {"Id": "t", "Arn": "https://host/", "HttpParameters": http})
    assert secret() == own
    put(call, {"Id": "t", "Arn": "https://other/"})
    assert secret() not in (first, own), "another receiver does not get to know it"


def test_all_targets_are_put_or_none(call: RequestContext, rule: str) -> None:
    many = [{"Id": str(number), "Arn": QUEUE} for number in range(6)]
    with pytest.raises(AwsError, match="at most 5 targets"):
        put(call, *many)
    with pytest.raises(AwsError, match="an Id comes more than once"):
        put(call, many[0], many[0])
    gone = f"{QUEUE.replace(':sqs:', ':events:').replace(':q', ':api-destination/n/1')}"
    with pytest.raises(AwsError, match="does not exist"):
        put(call, many[0], {"Id": "api", "Arn": gone})
    assert list_targets_by_rule(call, {"Rule": rule})["Targets"] == []


def test_removing_tells_what_was_not_there(call: RequestContext, rule: str) -> None:
    put(call, {"Id": "a", "Arn": QUEUE}, {"Id": "b", "Arn": QUEUE})
    answer = remove_targets(call, {"Rule": rule, "Ids": ["a", "x"]})
    assert (answer["FailedEntryCount"], answer["FailedEntries"][0]["TargetId"]) == (1, "x")
    listed = list_targets_by_rule(call, {"Rule": rule})["Targets"]
    assert [target["Id"] for target in listed] == ["b"]
