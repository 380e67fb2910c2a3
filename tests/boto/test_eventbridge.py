"""EventBridge by a real client: rules, what they match, and where events go."""

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.deploy import Deployer
from support.receiver import Receiver, status
from support.server import Server, eventually

PATTERN = {
    "source": ["my.jobs"],
    "detail-type": ["SageMaker Training Job State Change"],
    "detail": {"TrainingJobStatus": ["Completed", "Failed", "Stopped"]},
}
DETAIL = {"TrainingJobName": "job-1", "TrainingJobStatus": "Completed", "Tags": {}}


@pytest.fixture(scope="module")
def events(aws: Server) -> Any:
    return aws.client("events")


@pytest.fixture(scope="module")
def sqs(aws: Server) -> Any:
    return aws.client("sqs")


@pytest.fixture(scope="module")
def sns(aws: Server) -> Any:
    return aws.client("sns")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def source() -> str:
    """Of this test's events only: other tests' rules do not match them."""
    return f"my.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def rule(events: Any, source: str) -> Iterator[str]:
    name = f"rule-{source}"
    events.put_rule(Name=name, EventPattern=json.dumps({**PATTERN, "source": [source]}))
    yield name
    remove(events, name)


def remove(events: Any, name: str) -> None:
    if targets := events.list_targets_by_rule(Rule=name)["Targets"]:
        events.remove_targets(Rule=name, Ids=[one["Id"] for one in targets])
    events.delete_rule(Name=name)


def make_queue(sqs: Any) -> tuple[str, str]:
    """URL and ARN of a new queue."""
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return url, told["QueueArn"]


def receive(sqs: Any, url: str, wait_seconds: int = 10) -> dict[str, Any] | None:
    answer = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=wait_seconds, MessageAttributeNames=["All"]
    )
    for message in answer.get("Messages", []):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return dict(message)
    return None


def entry(source: str, detail: Any = DETAIL, **more: Any) -> dict[str, Any]:
    return {
        "Source": source,
        "DetailType": "SageMaker Training Job State Change",
        "Detail": detail if isinstance(detail, str) else json.dumps(detail),
        **more,
    }


def put(events: Any, *entries: dict[str, Any]) -> list[str]:
    answer = events.put_events(Entries=list(entries))
    assert answer["FailedEntryCount"] == 0, answer
    return [one["EventId"] for one in answer["Entries"]]


def code_of(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_an_event_reaches_a_queue(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    put_targets(events, rule, {"Id": "queue", "Arn": arn})
    moment = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    (event_id,) = put(events, entry(source, Resources=["arn:x"], Time=moment))
    message = receive(sqs, url)
    assert message is not None
    body = json.loads(message["Body"])
    assert list(body) == [
        "version", "id", "detail-type", "source", "account", "time", "region", "resources",
        "detail",
    ]  # fmt: skip
    assert body == {
        "version": "0",
        "id": event_id,
        "detail-type": "SageMaker Training Job State Change",
        "source": source,
        "account": "000000000000",
        "time": "2026-03-04T05:06:07Z",
        "region": "us-east-1",
        "resources": ["arn:x"],
        "detail": DETAIL,
    }


def test_a_training_job_s_life_reaches_queue_topic_and_webhook(
    events: Any, sqs: Any, sns: Any, receiver: Receiver, deploy: Deployer
) -> None:
    job = f"job-{uuid.uuid4().hex[:8]}"
    url, arn = make_queue(sqs)
    by_topic, topic_queue = make_queue(sqs)
    topic = sns.create_topic(Name=f"t-{job}")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=topic_queue)
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": [job]},
    }
    ended = {**pattern, "detail": {**pattern["detail"], "TrainingJobStatus": ["Completed"]}}
    events.put_rule(Name=f"all-{job}", EventPattern=json.dumps(pattern))
    events.put_rule(Name=f"ended-{job}", EventPattern=json.dumps(ended))
    put_targets(events, f"all-{job}", {"Id": "queue", "Arn": arn})
    put_targets(
        events,
        f"ended-{job}",
        {"Id": "topic", "Arn": topic},
        {"Id": "hook", "Arn": receiver.url("/ended")},
    )
    created = deploy.training_job(job, "/bin/echo", "working")
    (post,) = receiver.wait_for("/ended")
    message = receive(sqs, by_topic)
    assert message is not None
    assert json.loads(json.loads(message["Body"])["Message"]) == post.json
    assert post.json["resources"] == [created]
    assert post.json["detail"]["TrainingJobArn"] == created
    seen = []
    while not seen or seen[-1] != "Completed":
        message = receive(sqs, url)
        assert message is not None
        seen.append(json.loads(message["Body"])["detail"]["SecondaryStatus"])
    assert [one for one in seen if one != "Pending"] == [
        "Starting", "Downloading", "Training", "Uploading", "Completed",
    ]  # fmt: skip
    assert len(receiver.at("/ended")) == 1
    for name in (f"all-{job}", f"ended-{job}"):
        remove(events, name)


def test_what_does_not_match_is_not_sent(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    put_targets(events, rule, {"Id": "queue", "Arn": arn})
    running = {**DETAIL, "TrainingJobStatus": "InProgress"}
    _, wanted = put(events, entry(source, running), entry(source))
    message = receive(sqs, url)
    assert message is not None
    assert json.loads(message["Body"])["id"] == wanted
    events.disable_rule(Name=rule)
    assert events.describe_rule(Name=rule)["State"] == "DISABLED"
    put(events, entry(source))
    events.enable_rule(Name=rule)
    (after,) = put(events, entry(source))
    message = receive(sqs, url)
    assert message is not None
    assert json.loads(message["Body"])["id"] == after
    assert receive(sqs, url, wait_seconds=0) is None


def test_an_event_reaches_a_topic(events: Any, sqs: Any, sns: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    topic = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    put_targets(events, rule, {"Id": "topic", "Arn": topic})
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)
    assert message is not None
    notice = json.loads(message["Body"])
    assert notice["TopicArn"] == topic
    assert "Subject" not in notice
    assert json.loads(notice["Message"])["id"] == event_id


def test_a_webhook_gets_it_signed(events: Any, receiver: Receiver, rule: str, source: str) -> None:
    target = {
        "Id": "hook",
        "Arn": receiver.url("/hook?a=1"),
        "HttpParameters": {
            "HeaderParameters": {"X-Mine": "yes"},
            "QueryStringParameters": {"b": "2 3"},
        },
    }
    put_targets(events, rule, target)
    (listed,) = events.list_targets_by_rule(Rule=rule)["Targets"]
    secret = listed["HttpParameters"]["HeaderParameters"].pop("WebhookSecret")
    assert listed == target
    put_targets(events, rule, target)
    assert webhook_secret(events, rule) == secret, "it stays with the target"
    (event_id,) = put(events, entry(source))
    (post,) = receiver.wait_for("/hook?a=1&b=2+3")
    assert post.json["id"] == event_id
    assert post.headers["content-type"] == "application/json"
    assert post.headers["x-mine"] == "yes"
    assert "webhooksecret" not in post.headers
    message_id, moment = post.headers["webhook-id"], post.headers["webhook-timestamp"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{moment}.".encode() + post.body
    mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{mac}"


def test_a_webhook_that_fails_is_called_again(
    events: Any, receiver: Receiver, rule: str, source: str
) -> None:
    receiver.answers["/flaky"] = [status(500), status(200)]
    put_targets(events, rule, {"Id": "hook", "Arn": receiver.url("/flaky")})
    put(events, entry(source))
    first, second = receiver.wait_for("/flaky", count=2)
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert second.at - first.at > 0.8, "some back-off"


def test_what_a_webhook_refuses_is_a_dead_letter(
    events: Any, sqs: Any, receiver: Receiver, rule: str, source: str
) -> None:
    url, arn = make_queue(sqs)
    receiver.answers["/gone"] = [status(410)]
    receiver.answers["/never"] = [status(500)]
    dead = {"DeadLetterConfig": {"Arn": arn}}
    gone = {"Id": "gone", "Arn": receiver.url("/gone"), "Input": '"constant"', **dead}
    put_targets(events, rule, gone)
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)
    assert message is not None
    assert receiver.at("/gone")[0].json == "constant"
    assert json.loads(message["Body"])["id"] == event_id, "the event, not what became of it"
    why = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    assert why["TARGET_ARN"] == receiver.url("/gone")
    assert (why["RULE_ARN"], why["ERROR_MESSAGE"]) == (rule_arn(events, rule), "status 410")
    assert "EXHAUSTED_RETRY_CONDITION" not in why
    events.remove_targets(Rule=rule, Ids=["gone"])
    never = {"Id": "never", "Arn": receiver.url("/never"), **dead}
    put_targets(events, rule, {**never, "RetryPolicy": {"MaximumRetryAttempts": 0}})
    put(events, entry(source))
    message = receive(sqs, url)
    assert message is not None
    told = message["MessageAttributes"]["EXHAUSTED_RETRY_CONDITION"]["StringValue"]
    assert told == "MaximumRetryAttempts"
    assert len(receiver.at("/never")) == 1


def test_what_finds_its_queue_gone_is_a_dead_letter(
    events: Any, sqs: Any, rule: str, source: str
) -> None:
    url, arn = make_queue(sqs)
    missing = arn.replace(":q-", ":missing-")
    put_targets(events, rule, {"Id": "q", "Arn": missing, "DeadLetterConfig": {"Arn": arn}})
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)
    assert message is not None
    assert json.loads(message["Body"])["id"] == event_id
    assert message["MessageAttributes"]["ERROR_CODE"]["StringValue"] == "NO_RESOURCE"
    assert message["MessageAttributes"]["TARGET_ARN"]["StringValue"] == missing


def test_what_targets_are_given(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    transformer = {
        "InputPathsMap": {
            "job": "$.detail.TrainingJobName",
            "status": "$.detail.TrainingJobStatus",
        },
        "InputTemplate": '{"text": "Job <job> is <status>", "job": <job>}',
    }
    for number, way in enumerate(
        ({"Input": '{"a": 1}'}, {"InputPath": "$.detail.Tags"}, {"InputTransformer": transformer})
    ):
        put_targets(events, rule, {"Id": "one", "Arn": arn, **way})
        put(events, entry(source))
        message = receive(sqs, url)
        assert message is not None
        wanted = [{"a": 1}, {}, {"text": "Job job-1 is Completed", "job": "job-1"}]
        assert json.loads(message["Body"]) == wanted[number]


def test_rules_are_listed_described_and_deleted(events: Any, sqs: Any) -> None:
    prefix = f"p{uuid.uuid4().hex[:6]}"
    names = [f"{prefix}-{letter}" for letter in "abc"]
    for name in names:
        arn = events.put_rule(
            Name=name, EventPattern='{"source": ["x"]}', Tags=[{"Key": "k", "Value": "v"}]
        )["RuleArn"]
        assert arn == f"arn:aws:events:us-east-1:000000000000:rule/{name}"
    pages = events.get_paginator("list_rules").paginate(
        NamePrefix=prefix, PaginationConfig={"PageSize": 2}
    )
    assert [[one["Name"] for one in page["Rules"]] for page in pages] == [names[:2], names[2:]]
    assert events.describe_rule(Name=names[0], EventBusName="default")["EventBusName"] == "default"
    events.put_rule(Name=names[0], EventPattern='{"source": ["y"]}', State="DISABLED")
    told = events.describe_rule(Name=names[0])
    assert (told["EventPattern"], told["State"]) == ('{"source": ["y"]}', "DISABLED")
    assert events.list_tags_for_resource(ResourceARN=told["Arn"])["Tags"] == [
        {"Key": "k", "Value": "v"}
    ]
    events.untag_resource(ResourceARN=told["Arn"], TagKeys=["k"])
    events.tag_resource(ResourceARN=told["Arn"], Tags=[{"Key": "l", "Value": ""}])
    tags = events.list_tags_for_resource(ResourceARN=told["Arn"])["Tags"]
    assert tags == [{"Key": "l", "Value": ""}]
    _, queue = make_queue(sqs)
    for name in names:
        put_targets(events, name, {"Id": "1", "Arn": queue})
    assert events.list_rule_names_by_target(TargetArn=queue)["RuleNames"] == names
    assert code_of(lambda: events.delete_rule(Name=names[0])) == (
        "ValidationException",
        "Rule can't be deleted since it has targets.",
    )
    for name in names:
        remove(events, name)
    assert events.list_rules(NamePrefix=prefix)["Rules"] == []
    events.delete_rule(Name=names[0])


def test_there_is_one_bus(events: Any) -> None:
    arn = "arn:aws:events:us-east-1:000000000000:event-bus/default"
    for name in ("default", arn):
        assert events.describe_event_bus(Name=name)["Arn"] == arn
    assert [one["Name"] for one in events.list_event_buses()["EventBuses"]] == ["default"]
    assert events.list_event_buses(NamePrefix="my")["EventBuses"] == []
    assert code_of(lambda: events.describe_event_bus(Name="my"))[0] == "ResourceNotFoundException"


def test_missing_things_are_told(events: Any, rule: str) -> None:
    for call in (
        lambda: events.describe_rule(Name="none"),
        lambda: events.enable_rule(Name="none"),
        lambda: events.list_targets_by_rule(Rule="none"),
        lambda: events.put_targets(Rule="none", Targets=[{"Id": "1", "Arn": "https://host/"}]),
        lambda: events.list_rules(EventBusName="mine"),
        lambda: events.list_tags_for_resource(ResourceARN=rule_arn(events, rule) + "x"),
    ):
        assert code_of(call)[0] == "ResourceNotFoundException"
    answer = events.remove_targets(Rule=rule, Ids=["none"])
    assert answer["FailedEntryCount"] == 1
    assert answer["FailedEntries"][0]["ErrorCode"] == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("rule", "code", "why"),
    [
        ({"EventPattern": '{"source": "x"}'}, "InvalidEventPatternException",
         'Event pattern is not valid. Reason: "source" must be an object or an array'),
        ({"EventPattern": '{"a": [' + '"x",' * 2000 + '"y"]}'}, "ValidationException", "4096"),
        ({"EventPattern": "{"}, "InvalidEventPatternException", "Reason: "),
        ({"ScheduleExpression": "rate(5 minutes)"}, "ValidationException", "ScheduleExpression"),
        ({}, "ValidationException", "must be specified"),
        ({"EventPattern": '{"source": ["x"]}', "EventBusName": "mine"},
         "ResourceNotFoundException", "Event bus mine does not exist"),
    ],
)  # fmt: skip
def test_bad_rules(events: Any, rule: dict[str, Any], code: str, why: str) -> None:
    found, message = code_of(lambda: events.put_rule(Name="bad", **rule))
    assert (found, why in message) == (code, True), message
    assert events.list_rules(NamePrefix="bad")["Rules"] == []


QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"Arn": "arn:aws:lambda:us-east-1:000000000000:function:f"}, "targets of lambda"),
        ({"Arn": "arn:aws:sqs:us-east-1:111111111111:queue"}, "not of this server"),
        ({"Arn": QUEUE + ".fifo"}, "FIFO"),
        ({"Arn": "queue"}, "Provided Arn is not in correct format"),
        ({"Arn": "https://"}, "no URL"),
        ({"Arn": "https://host:99999/"}, "no URL"),
        ({"Arn": QUEUE, "Input": "{", }, "Input is not valid JSON"),
        ({"Arn": QUEUE, "Input": "{}", "InputPath": "$"}, "Only one of"),
        ({"Arn": QUEUE, "InputPath": "detail"}, "begins with $"),
        ({"Arn": QUEUE, "InputTransformer": {"InputTemplate": '"<job>"'}}, "placeholder <job>"),
        ({"Arn": QUEUE, "DeadLetterConfig": {"Arn": "arn:aws:sns:us-east-1:000000000000:t"}},
         "DeadLetterConfig"),
        ({"Arn": QUEUE, "SqsParameters": {"MessageGroupId": "g"}}, "SqsParameters"),
        ({"Arn": QUEUE, "HttpParameters": {"HeaderParameters": {"a": "b"}}}, "a URL only"),
        ({"Arn": "http://h/", "HttpParameters": {"HeaderParameters": {"Host": "x"}}}, "Host"),
        ({"Arn": "http://h/", "HttpParameters": {"HeaderParameters": {"WebhookSecret": "x"}}},
         "whsec_"),
        ({"Arn": "http://h/", "HttpParameters": {"HeaderParameters": {"a": "$.detail.x"}}},
         "read from the event"),
        ({"Arn": QUEUE, "RetryPolicy": {"MaximumRetryAttempts": 186}}, "185"),
    ],
)  # fmt: skip
def test_bad_targets(events: Any, rule: str, target: dict[str, Any], why: str) -> None:
    good = {"Id": "good", "Arn": QUEUE}
    code, message = code_of(
        lambda: events.put_targets(Rule=rule, Targets=[good, {"Id": "bad", **target}])
    )
    assert (code, why in message) == ("ValidationException", True), message
    assert events.list_targets_by_rule(Rule=rule)["Targets"] == [], "all of them or none"


def test_a_rule_has_five_targets(events: Any, rule: str) -> None:
    targets = [{"Id": str(number), "Arn": QUEUE} for number in range(5)]
    put_targets(events, rule, *targets)
    put_targets(events, rule, *targets)
    code, _ = code_of(lambda: events.put_targets(Rule=rule, Targets=[{"Id": "6", "Arn": QUEUE}]))
    assert code == "LimitExceededException"
    assert len(events.list_targets_by_rule(Rule=rule)["Targets"]) == 5


def test_bad_events_are_told_one_by_one(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    put_targets(events, rule, {"Id": "queue", "Arn": arn})
    answer = events.put_events(
        Entries=[
            entry(source, "no json"),
            entry(source, "[1]"),
            entry("aws.sagemaker"),
            {"Source": source, "Detail": "{}"},
            entry(source, EventBusName="mine"),
            entry(source),
        ]
    )
    assert answer["FailedEntryCount"] == 5
    assert [one.get("ErrorCode") for one in answer["Entries"]] == [
        "MalformedDetail",
        "MalformedDetail",
        "NotAuthorizedForSource",
        "InvalidArgument",
        "ResourceNotFoundException",
        None,
    ]
    message = receive(sqs, url)
    assert message is not None
    assert json.loads(message["Body"])["id"] == answer["Entries"][5]["EventId"]
    large = [entry(source, {"a": "x" * 300_000}) for _ in range(4)]
    code, text = code_of(lambda: events.put_events(Entries=large))
    assert (code, "over the limit" in text) == ("ValidationException", True)


def test_patterns_can_be_tried(events: Any) -> None:
    event = {
        "id": "1", "account": "000000000000", "source": "my.jobs", "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1", "resources": [], "detail-type": "t",
        "detail": {"name": "job-1", "seconds": 5},
    }  # fmt: skip

    def tried(pattern: dict[str, Any]) -> bool:
        return bool(
            events.test_event_pattern(EventPattern=json.dumps(pattern), Event=json.dumps(event))[
                "Result"
            ]
        )

    assert tried({"detail": {"name": [{"wildcard": "job-*"}], "seconds": [{"numeric": ["<", 6]}]}})
    assert not tried({"detail": {"name": [{"anything-but": {"prefix": "job"}}]}})
    del event["region"]
    code, message = code_of(lambda: tried({"source": ["x"]}))
    assert (code, "it lacks region" in message) == ("ValidationException", True)
    assert code_of(lambda: tried({}))[0] == "InvalidEventPatternException"


def put_targets(events: Any, rule: str, *targets: dict[str, Any]) -> None:
    answer = events.put_targets(Rule=rule, Targets=list(targets))
    assert (answer["FailedEntryCount"], answer["FailedEntries"]) == (0, [])


def webhook_secret(events: Any, rule: str) -> str:
    (listed,) = events.list_targets_by_rule(Rule=rule)["Targets"]
    return str(listed["HttpParameters"]["HeaderParameters"]["WebhookSecret"])


def rule_arn(events: Any, rule: str) -> str:
    return str(events.describe_rule(Name=rule)["Arn"])


def test_a_removed_webhook_gets_nothing_more(
    events: Any, receiver: Receiver, rule: str, source: str
) -> None:
    receiver.answers["/failing"] = [status(500)]
    put_targets(events, rule, {"Id": "hook", "Arn": receiver.url("/failing")})
    put(events, entry(source))
    receiver.wait_for("/failing")
    events.remove_targets(Rule=rule, Ids=["hook"])
    put_targets(events, rule, {"Id": "hook", "Arn": receiver.url("/next")})
    (event_id,) = put(events, entry(source))
    eventually(lambda: bool(receiver.at("/next")))
    assert [post.json["id"] for post in receiver.at("/next")] == [event_id]
