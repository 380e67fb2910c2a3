"""EventBridge by a real client: rules, connections, what is matched, and bad input."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from support.events import (
    DETAIL,
    code_of,
    entry,
    is_empty,
    make_queue,
    put,
    put_targets,
    receive,
    remove,
    rule_arn,
)


def test_what_does_not_match_is_not_sent(events: Any, sqs: Any, rule: str, source: str) -> None:
    url, arn = make_queue(sqs)
    put_targets(events, rule, {"Id": "queue", "Arn": arn})
    running = {**DETAIL, "TrainingJobStatus": "InProgress"}
    _, wanted = put(events, entry(source, running), entry(source))
    message = receive(sqs, url)
    assert json.loads(message["Body"])["id"] == wanted
    events.disable_rule(Name=rule)
    assert events.describe_rule(Name=rule)["State"] == "DISABLED"
    put(events, entry(source))
    events.enable_rule(Name=rule)
    (after,) = put(events, entry(source))
    message = receive(sqs, url)
    assert json.loads(message["Body"])["id"] == after
    assert is_empty(sqs, url)


BASIC = {"BasicAuthParameters": {"Username": "u", "Password": "p"}}


KEY = {"ApiKeyAuthParameters": {"ApiKeyName": "x-key", "ApiKeyValue": "v"}}


def test_connections_and_api_destinations_are_kept(events: Any) -> None:
    made = {"Name": "kept", "AuthorizationType": "BASIC", "AuthParameters": BASIC}
    arn = events.create_connection(**made)["ConnectionArn"]
    assert code_of(lambda: events.create_connection(**made))[0] == "ResourceAlreadyExistsException"
    api = {"ConnectionArn": arn, "InvocationEndpoint": "http://host/api", "HttpMethod": "PUT"}
    events.create_api_destination(Name="kept", **api)
    events.update_api_destination(Name="kept", HttpMethod="PATCH", Description="d")
    told = events.describe_api_destination(Name="kept")
    assert (told["HttpMethod"], told["Description"]) == ("PATCH", "d")
    assert told["InvocationRateLimitPerSecond"] == 300
    (listed,) = events.list_api_destinations(ConnectionArn=arn)["ApiDestinations"]
    assert listed["ApiDestinationState"] == "ACTIVE"
    assert events.list_api_destinations(NamePrefix="other")["ApiDestinations"] == []
    events.update_connection(Name="kept", Description="mine")
    (listed,) = events.list_connections(NamePrefix="kept")["Connections"]
    assert (listed["AuthorizationType"], listed["ConnectionArn"]) == ("BASIC", arn)
    told = events.describe_connection(Name="kept")
    assert told["Description"] == "mine"
    prefix = "arn:aws:secretsmanager:us-east-1:000000000000:secret:events!connection/kept/"
    assert told["SecretArn"].startswith(prefix)
    assert events.describe_connection(Name="kept")["SecretArn"] == told["SecretArn"]
    for changes, code in (
        ({"ConnectionArn": arn + "0"}, "ResourceNotFoundException"),
        ({"InvocationEndpoint": "host"}, "ValidationException"),
    ):
        bad = {**api, **changes}
        assert code_of(lambda bad=bad: events.create_api_destination(Name="n", **bad))[0] == code
    assert code_of(lambda: events.delete_api_destination(Name="n"))[0] == (
        "ResourceNotFoundException"
    )
    events.delete_api_destination(Name="kept")
    events.delete_connection(Name="kept")
    assert events.list_connections(NamePrefix="kept")["Connections"] == []


def test_the_default_bus(events: Any) -> None:
    bus = events.describe_event_bus()
    assert bus["Arn"] == "arn:aws:events:us-east-1:000000000000:event-bus/default"
    assert bus["CreationTime"] == bus["LastModifiedTime"]
    assert 0 < (datetime.now(UTC) - bus["CreationTime"]).total_seconds() < 3600
    (listed,) = events.list_event_buses()["EventBuses"]
    assert listed["CreationTime"] == bus["CreationTime"]


def test_words_of_what_does_not_exist(events: Any) -> None:
    """As a public emulator's tests have recorded them from AWS, but for the last two."""
    arn = "arn:aws:events:us-east-1:000000000000:rule/unknown"
    rule = "Rule unknown does not exist on EventBus default."
    tags = [{"Key": "k", "Value": "v"}]
    for call, message in (
        (lambda: events.describe_event_bus(Name="x"), "Event bus x does not exist."),
        (lambda: events.list_tags_for_resource(ResourceARN=arn), rule),
        (lambda: events.tag_resource(ResourceARN=arn, Tags=tags), rule),
        (lambda: events.untag_resource(ResourceARN=arn, TagKeys=["k"]), rule),
        (lambda: events.list_tags_for_resource(ResourceARN=arn.replace(":rule/", ":event-bus/")),
         "Event bus unknown does not exist."),
        (lambda: events.describe_connection(Name="x"),
         "Failed to describe the connection(s). Connection 'x' does not exist."),
        (lambda: events.describe_api_destination(Name="x"),
         "Failed to describe the api-destination(s). An api-destination 'x' does not exist."),
        (lambda: events.delete_connection(Name="x"), "Connection 'x' does not exist."),
        (lambda: events.delete_api_destination(Name="x"),
         "An api-destination 'x' does not exist."),
    ):  # fmt: skip
        assert code_of(call) == ("ResourceNotFoundException", message)


@pytest.mark.parametrize(
    ("kind", "parameters", "why"),
    [
        ("BASIC", KEY, "must have BasicAuthParameters with both members, and no other"),
        ("API_KEY", {**KEY, **BASIC}, "have ApiKeyAuthParameters with both members, and no other"),
        ("API_KEY", {"ApiKeyAuthParameters": {"ApiKeyName": "a b", "ApiKeyValue": "v"}}, "a b is"),
        ("OAUTH_CLIENT_CREDENTIALS", KEY, "AuthorizationType OAUTH_CLIENT_CREDENTIALS"),
        ("API_KEY", {**KEY, "InvocationHttpParameters": {"BodyParameters": [{"Key": "k"}]}},
         "BodyParameters"),
    ],
)  # fmt: skip
def test_bad_connections(events: Any, kind: str, parameters: dict[str, Any], why: str) -> None:
    code, message = code_of(
        lambda: events.create_connection(
            Name="bad", AuthorizationType=kind, AuthParameters=parameters
        )
    )
    assert (code, why in message) == ("ValidationException", True), message
    assert code_of(lambda: events.describe_connection(Name="bad"))[0] == (
        "ResourceNotFoundException"
    )


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
         "ResourceNotFoundException", "Event bus mine does not exist."),
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
        ({"Arn": "arn:aws:events:us-east-1:000000000000:api-destination/a/b"}, "does not exist"),
        ({"Arn": "queue"}, "Provided Arn is not in correct format"),
        ({"Arn": "https://"}, "not a URL"),
        ({"Arn": "https://host:99999/"}, "not a URL"),
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
            entry(source, '{"a":' * 960 + "1" + "}" * 960),
            entry("aws.sagemaker"),
            {"Source": source, "Detail": "{}"},
            entry(source, EventBusName="mine"),
            entry(source),
        ]
    )
    assert answer["FailedEntryCount"] == 6
    assert [one.get("ErrorCode") for one in answer["Entries"]] == [
        "MalformedDetail",
        "MalformedDetail",
        "MalformedDetail",
        "NotAuthorizedForSource",
        "InvalidArgument",
        "ResourceNotFoundException",
        None,
    ]
    message = receive(sqs, url)
    assert json.loads(message["Body"])["id"] == answer["Entries"][6]["EventId"]
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
