"""Where the events of EventBridge go: queues, topics, webhooks, API destinations, dead letters."""

import base64
import hashlib
import hmac
import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from support.deploy import Deployer
from support.events import (
    DETAIL,
    entry,
    make_queue,
    put,
    put_targets,
    receive,
    remove,
    rule_arn,
    webhook_secret,
)
from support.receiver import Receiver, status
from support.server import Server, eventually


@pytest.fixture(scope="module")
def sns(aws: Server) -> Any:
    return aws.client("sns")


def test_an_event_reaches_a_queue(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    put_targets(events, rule, {"Id": "queue", "Arn": arn})
    moment = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    (event_id,) = put(events, entry(source, Resources=["arn:x"], Time=moment))
    message = receive(sqs, url)
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
    assert json.loads(json.loads(message["Body"])["Message"]) == post.json
    assert post.json["resources"] == [created]
    assert post.json["detail"]["TrainingJobArn"] == created
    seen = []
    while not seen or seen[-1] != "Completed":
        message = receive(sqs, url)
        seen.append(json.loads(message["Body"])["detail"]["SecondaryStatus"])
    assert [one for one in seen if one != "Pending"] == [
        "Starting", "Downloading", "Training", "Uploading", "Completed",
    ]  # fmt: skip
    assert len(receiver.at("/ended")) == 1
    for name in (f"all-{job}", f"ended-{job}"):
        remove(events, name)


def test_an_event_reaches_a_topic(events: Any, sqs: Any, sns: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    topic = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    put_targets(events, rule, {"Id": "topic", "Arn": topic})
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)
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


def test_an_api_destination_gets_its_key(
    events: Any, sqs: Any, receiver: Receiver, rule: str, source: str
) -> None:
    name = f"api-{source}"
    connection = events.create_connection(
        Name=name,
        AuthorizationType="API_KEY",
        AuthParameters={
            "ApiKeyAuthParameters": {"ApiKeyName": "x-api-key", "ApiKeyValue": "s3cret"},
            "InvocationHttpParameters": {
                "QueryStringParameters": [{"Key": "q", "Value": "1", "IsValueSecret": True}]
            },
        },
    )["ConnectionArn"]
    shown = events.describe_connection(Name=name)
    assert (shown["ConnectionState"], shown["AuthorizationType"]) == ("AUTHORIZED", "API_KEY")
    assert shown["AuthParameters"]["ApiKeyAuthParameters"] == {"ApiKeyName": "x-api-key"}
    assert "s3cret" not in str(shown)
    destination = events.create_api_destination(
        Name=name,
        ConnectionArn=connection,
        InvocationEndpoint=receiver.url("/jobs/*/ended"),
        HttpMethod="POST",
        InvocationRateLimitPerSecond=5,
    )["ApiDestinationArn"]
    url, arn = make_queue(sqs)
    target = {
        "Id": "api",
        "Arn": destination,
        "InputPath": "$.detail",
        "HttpParameters": {"PathParameterValues": ["a b"], "HeaderParameters": {"X-Mine": "yes"}},
        "DeadLetterConfig": {"Arn": arn},
    }
    put_targets(events, rule, target)
    assert events.list_targets_by_rule(Rule=rule)["Targets"] == [target]
    receiver.answers["/jobs/a%20b/ended?q=1"] = [status(503), status(200), status(400)]
    put(events, entry(source))
    first, second = receiver.wait_for("/jobs/a%20b/ended?q=1", count=2)
    for post in (first, second):
        assert post.json == DETAIL
        assert (post.headers["x-api-key"], post.headers["x-mine"]) == ("s3cret", "yes")
        assert post.headers["content-type"] == "application/json; charset=utf-8"
        assert "webhook-signature" not in post.headers
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)  # a 400 is final
    assert json.loads(message["Body"])["id"] == event_id
    assert message["MessageAttributes"]["TARGET_ARN"]["StringValue"] == destination
    events.delete_api_destination(Name=name)
    (event_id,) = put(events, entry(source))
    message = receive(sqs, url)
    assert message["MessageAttributes"]["ERROR_CODE"]["StringValue"] == "NO_RESOURCE"
    events.delete_connection(Name=name)


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
        wanted = [{"a": 1}, {}, {"text": "Job job-1 is Completed", "job": "job-1"}]
        assert json.loads(message["Body"]) == wanted[number]


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
