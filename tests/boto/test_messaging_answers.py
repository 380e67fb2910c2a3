"""Answers of SQS, SNS and EventBridge that recordings of AWS's own answers decide."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.events import entry, put_targets
from support.receiver import Receiver
from support.server import Server

ACCOUNT = "000000000000"
ALL = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"


@pytest.fixture(scope="module")
def sns(aws: Server) -> Any:
    return aws.client("sns")


@pytest.fixture
def queue(sqs: Any) -> Iterator[str]:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)


@pytest.fixture
def topic(sns: Any) -> Iterator[str]:
    arn = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    yield arn
    sns.delete_topic(TopicArn=arn)


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"


def subscribe(sns: Any, topic: str, queue: str, **attributes: str) -> str:
    answer = sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn_of(queue),
        Attributes=attributes,
        ReturnSubscriptionArn=True,
    )
    return str(answer["SubscriptionArn"])


def receive(sqs: Any, url: str, **params: Any) -> list[dict[str, Any]]:
    params = {"MaxNumberOfMessages": 10, **ALL, **params}
    return list(sqs.receive_message(QueueUrl=url, **params).get("Messages", []))


def error_of(call: Callable[..., Any], **params: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    error = caught.value.response["Error"]
    return str(error["Code"]), str(error["Message"])


def test_message_group_id_of_standard_queue_is_returned(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="one", MessageGroupId="tenant-1")
    entries = [
        {"Id": "a", "MessageBody": "two", "MessageGroupId": "x" * 128},
        {"Id": "b", "MessageBody": "none"},
        {"Id": "c", "MessageBody": "bad", "MessageGroupId": "g 1"},
    ]
    answer = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [entry["Id"] for entry in answer["Failed"]] == ["c"]
    groups = {
        message["Body"]: message["Attributes"].get("MessageGroupId")
        for message in receive(sqs, queue)
    }
    assert groups == {"one": "tenant-1", "two": "x" * 128, "none": None}


@pytest.mark.parametrize("group", ["", "g 1", "ä", "x" * 129])
def test_message_group_id_is_checked(
    sqs: Any, sns: Any, queue: str, topic: str, group: str
) -> None:
    code, message = error_of(
        sqs.send_message, QueueUrl=queue, MessageBody="m", MessageGroupId=group
    )
    assert code == "InvalidParameterValue"
    assert message == (
        f"Value {group} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only "
        "include alphanumeric and punctuation characters. 1 to 128 in length."
    )
    code, message = error_of(sns.publish, TopicArn=topic, Message="m", MessageGroupId=group)
    assert code == "InvalidParameter"
    assert "MessageGroupId" in message


@pytest.mark.parametrize("raw", ["true", "false"])
def test_message_group_id_goes_from_topic_to_queue(
    sns: Any, sqs: Any, topic: str, queue: str, raw: str
) -> None:
    subscribe(sns, topic, queue, RawMessageDelivery=raw)
    sns.publish(TopicArn=topic, Message="m", MessageGroupId="g")
    entries = [{"Id": "a", "Message": "m", "MessageGroupId": "h"}]
    sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    groups = [message["Attributes"].get("MessageGroupId") for message in receive(sqs, queue)]
    assert sorted(groups) == ["g", "h"]


DOTTED = [
    ({"object.nested": ["x"]}, {"object": {"nested": "x"}}, True),
    ({"object": {"nested": ["x"]}}, {"object.nested": "x"}, True),
    ({"a.b": ["x"], "a.c": ["y"]}, {"a": {"b": "x", "c": "y"}}, True),
    ({"a.b.c": ["x"]}, {"a": {"b.c": "x"}}, True),
    ({"a": {"b.c": ["x"]}}, {"a.b": [{"c": "w"}, {"c": "x"}]}, True),
    ({"a.b": ["x"], "a": {"c": ["y"]}}, {"a": {"b": "x"}, "a.c": "y"}, True),
    ({"a.b": ["x"], "a.c": ["y"]}, {"a": [{"b": "x"}, {"c": "y"}]}, False),
    ({"state.status": {"status": ["x"]}}, {"state": {"status": "x"}}, False),
    ({"state": {"status": ["x"]}}, {"state.status": {"status": "x"}}, False),
    ({"a.b": [{"exists": False}]}, {"a": {"b": "x"}}, False),
    ({"a.b": [{"exists": False}]}, {"a": {"c": "x"}}, True),
]


@pytest.mark.parametrize(("policy", "body", "accepted"), DOTTED)
def test_keys_with_dots_are_paths(
    events: Any, policy: dict[str, Any], body: dict[str, Any], accepted: bool
) -> None:
    event = {"id": "1", "source": "s", "detail-type": "d", "account": "1", "region": "r"}
    event |= {"time": "2022-07-13T13:48:01Z", "resources": [], "detail": body}
    pattern = json.dumps({"detail": policy})
    answer = events.test_event_pattern(Event=json.dumps(event), EventPattern=pattern)
    assert answer["Result"] is accepted


def test_messages_pass_filters_whose_keys_have_dots(
    sns: Any, sqs: Any, topic: str, queue: str
) -> None:
    policy = json.dumps({"object.nested": ["x"], "$or": [{"a.b": [1]}, {"a": {"c": [2]}}]})
    subscribe(sns, topic, queue, FilterPolicy=policy, FilterPolicyScope="MessageBody")
    for body in (
        {"object": {"nested": "x"}, "a": {"b": 1}},
        {"object.nested": "x", "a.c": 2},
        {"object.nested": "y", "a.c": 2},
    ):
        sns.publish(TopicArn=topic, Message=json.dumps(body))
    assert len(receive(sqs, queue)) == 2


def test_filter_of_attributes_with_a_dot(sns: Any, sqs: Any, topic: str, queue: str) -> None:
    subscribe(sns, topic, queue, FilterPolicy=json.dumps({"my.name": ["x"]}))
    for value in ("x", "y"):
        attributes = {"my.name": {"DataType": "String", "StringValue": value}}
        sns.publish(TopicArn=topic, Message=value, MessageAttributes=attributes)
    (message,) = receive(sqs, queue)
    assert json.loads(message["Body"])["Message"] == "x"


def test_complex_wildcards_are_refused(events: Any, rule: str) -> None:
    def put(wildcard: str) -> Any:
        pattern = json.dumps({"resources": [{"wildcard": wildcard}]})
        return events.put_rule(Name=rule, EventPattern=pattern)

    with pytest.raises(ClientError) as caught:
        put("*:*:*:*:*:event-bus/*")
    assert caught.value.response["Error"] == {
        "Code": "InvalidEventPatternException",
        "Message": "Event pattern is not valid. Reason: Rule is too complex - try using fewer "
        "wildcard characters or fewer repeating character sequences after a wildcard character",
    }
    put("arn:*:events:*:*:event-bus/*")


@pytest.mark.parametrize("name", ["FifoQueue", "ContentBasedDeduplication"])
@pytest.mark.parametrize("is_new", [True, False])
def test_fifo_attributes_of_standard_queues_are_refused(
    sqs: Any, queue: str, name: str, is_new: bool
) -> None:
    attributes = {"Attributes": {name: "false"}}
    if is_new:
        answer = error_of(sqs.create_queue, QueueName=f"q-{uuid.uuid4()}", **attributes)
    else:
        answer = error_of(sqs.set_queue_attributes, QueueUrl=queue, **attributes)
    assert answer == ("InvalidAttributeName", f"Unknown Attribute {name}.")


def test_topic_is_created_again_with_fewer_tags(sns: Any) -> None:
    name = f"t-{uuid.uuid4().hex}"
    a, b, c = ({"Key": key, "Value": "1"} for key in "abc")
    arn = sns.create_topic(Name=name, Tags=[a, b])["TopicArn"]
    for tags in ([a], [b], []):
        assert sns.create_topic(Name=name, Tags=tags)["TopicArn"] == arn
    for tags in ([a, c], [{"Key": "a", "Value": "2"}]):
        assert error_of(sns.create_topic, Name=name, Tags=tags)[0] == "InvalidParameter"
    again = sns.create_topic(Name=name, Attributes={"FifoTopic": "false"})
    assert again["TopicArn"] == arn
    assert "FifoTopic" not in sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    sns.delete_topic(TopicArn=arn)


def test_fifo_topic_cannot_be_set(sns: Any, topic: str) -> None:
    change = {"TopicArn": topic, "AttributeName": "FifoTopic", "AttributeValue": "false"}
    assert error_of(sns.set_topic_attributes, **change)[0] == "InvalidParameter"


def test_batches_leave_empty_lists_out(sqs: Any, sns: Any, queue: str, topic: str) -> None:
    def bad_and_good(kind: Callable[..., Any], good: dict[str, Any], bad: dict[str, Any]) -> None:
        answer = kind(QueueUrl=queue, Entries=[{"Id": "1", **good}])
        assert set(answer) == {"Successful", "ResponseMetadata"}
        answer = kind(QueueUrl=queue, Entries=[{"Id": "1", **bad}])
        assert set(answer) == {"Failed", "ResponseMetadata"}

    bad_and_good(
        sqs.send_message_batch, {"MessageBody": "a"}, {"MessageBody": "a", "DelaySeconds": 901}
    )
    (message,) = receive(sqs, queue)
    handle = {"ReceiptHandle": message["ReceiptHandle"]}
    bad_and_good(
        sqs.change_message_visibility_batch,
        {**handle, "VisibilityTimeout": 10},
        {**handle, "VisibilityTimeout": -1},
    )
    bad_and_good(sqs.delete_message_batch, handle, {"ReceiptHandle": "x"})
    entries = [{"Id": "a", "Message": "m"}]
    assert sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)["Failed"] == []


def test_late_heartbeat_hides_message_again(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="m")
    (first,) = receive(sqs, queue, VisibilityTimeout=0)
    handle = {"QueueUrl": queue, "ReceiptHandle": first["ReceiptHandle"]}
    sqs.change_message_visibility(**handle, VisibilityTimeout=30)  # It was visible already.
    assert receive(sqs, queue) == []
    sqs.change_message_visibility(**handle, VisibilityTimeout=0)
    (second,) = receive(sqs, queue)
    entries = [{"Id": "1", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}]
    assert "Failed" not in sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)
    (third,) = receive(sqs, queue)
    assert third["Attributes"]["ApproximateReceiveCount"] == "3"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=third["ReceiptHandle"])
    for message in (first, second, third):
        handle = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
        assert error_of(sqs.change_message_visibility, **handle, VisibilityTimeout=1) == (
            "InvalidParameterValue",
            f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: "
            "Message does not exist or is not available for visibility timeout change.",
        )


def test_raw_message_delivery_in_any_case(sns: Any, topic: str, queue: str) -> None:
    arn = subscribe(sns, topic, queue, RawMessageDelivery="True")

    def change(value: str) -> str:
        setting = {"AttributeName": "RawMessageDelivery", "AttributeValue": value}
        sns.set_subscription_attributes(SubscriptionArn=arn, **setting)
        return shown()

    def shown() -> str:
        answer = sns.get_subscription_attributes(SubscriptionArn=arn)
        return str(answer["Attributes"]["RawMessageDelivery"])

    assert shown() == "true"
    assert change("FALSE") == "false"
    assert change("TrUe") == "true"
    for wrong in ("", "yes"):
        assert error_of(change, value=wrong)[0] == "InvalidParameter"
    assert shown() == "true"
    assert subscribe(sns, topic, queue, RawMessageDelivery="TRUE") == arn


def test_name_of_a_queue_as_its_url(sqs: Any, queue: str) -> None:
    name = queue.rpartition("/")[2]
    sqs.send_message(QueueUrl=name, MessageBody="x")
    (message,) = receive(sqs, name)
    sqs.delete_message(QueueUrl=name, ReceiptHandle=message["ReceiptHandle"])
    assert sqs.get_queue_attributes(QueueUrl=name, AttributeNames=["QueueArn"])["Attributes"]
    assert error_of(sqs.send_message, QueueUrl=name + "x", MessageBody="m")[0].endswith(
        "NonExistentQueue"
    )


def test_event_without_resources(events: Any) -> None:
    event = {"id": "1", "source": "s", "detail-type": "d", "account": "1", "region": "r"}
    event |= {"time": "2022-07-13T13:48:01Z", "detail": {}}
    for source, result in (("s", True), ("t", False)):
        pattern = json.dumps({"source": [source]})
        answer = events.test_event_pattern(Event=json.dumps(event), EventPattern=pattern)
        assert answer["Result"] is result


def test_entries_that_are_no_text_are_ignored(sns: Any, sqs: Any, topic: str, queue: str) -> None:
    subscribe(sns, topic, queue, RawMessageDelivery="true")
    text = json.dumps({"default": "d", "sqs": {"f": 1}, "http": None})
    sns.publish(TopicArn=topic, Message=text, MessageStructure="json")
    assert [message["Body"] for message in receive(sqs, queue)] == ["d"]
    for without in ({"sqs": "x"}, {"default": 1}, ["default"]):
        error = error_of(
            sns.publish, TopicArn=topic, Message=json.dumps(without), MessageStructure="json"
        )
        assert error[0] == "InvalidParameter"
        assert "No default entry" in error[1]


def test_receives_are_counted_on_in_the_dead_letter_queue(sqs: Any, queue: str) -> None:
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of(queue),
                                           "maxReceiveCount": 2})}  # fmt: skip
    name = f"q-{uuid.uuid4()}"
    url = sqs.create_queue(QueueName=name, Attributes=policy)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        assert receive(sqs, url, VisibilityTimeout=0)
    assert receive(sqs, url) == []
    last = sqs.create_queue(QueueName=f"{name}-last")["QueueUrl"]
    policy["RedrivePolicy"] = policy["RedrivePolicy"].replace(arn_of(queue), arn_of(last))
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=policy)
    for count in ("3", "4"):  # Two receives of its own, before this queue's own policy holds.
        (letter,) = receive(sqs, queue, VisibilityTimeout=0)
        assert letter["Attributes"]["ApproximateReceiveCount"] == count
    assert receive(sqs, queue) == []
    (letter,) = receive(sqs, last)
    assert letter["Attributes"]["ApproximateReceiveCount"] == "5"
    for each in (url, last):
        sqs.delete_queue(QueueUrl=each)


def with_trace(client: Any, trace: str = TRACE) -> Iterator[None]:
    """Sends the header that X-Ray and OpenTelemetry set."""

    def add(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = trace

    client.meta.events.register("before-sign.*.*", add)
    yield
    client.meta.events.unregister("before-sign.*.*", add)


@pytest.fixture
def traced(aws: Server) -> Iterator[dict[str, Any]]:
    clients = {name: aws.client(name) for name in ("sqs", "sns", "events")}
    tracing = [with_trace(client) for client in clients.values()]
    for each in tracing:
        next(each)
    yield clients
    for each in tracing:
        next(each, None)


def test_trace_id_of_a_request_becomes_the_messages_attribute(
    traced: dict[str, Any], sqs: Any, topic: str, queue: str
) -> None:
    subscribe(traced["sns"], topic, queue, RawMessageDelivery="true")
    sent = traced["sqs"].send_message(QueueUrl=queue, MessageBody="one")
    assert "MD5OfMessageSystemAttributes" not in sent
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-own"}}
    entries = [
        {"Id": "a", "MessageBody": "two"},
        {"Id": "b", "MessageBody": "own", "MessageSystemAttributes": own},
    ]
    answer = traced["sqs"].send_message_batch(QueueUrl=queue, Entries=entries)
    digests = ["MD5OfMessageSystemAttributes" in entry for entry in answer["Successful"]]
    assert digests == [False, True]
    traced["sns"].publish(TopicArn=topic, Message="three")
    sqs.send_message(QueueUrl=queue, MessageBody="none")
    traces = {
        message["Body"]: message["Attributes"].get("AWSTraceHeader")
        for message in receive(sqs, queue)
    }
    assert traces == {"one": TRACE, "two": TRACE, "three": TRACE, "own": "Root=1-own", "none": None}


def test_trace_header_of_an_event_goes_to_its_targets(
    traced: dict[str, Any],
    events: Any,
    sns: Any,
    sqs: Any,
    topic: str,
    queue: str,
    rule: str,
    source: str,
    receiver: Receiver,
) -> None:
    subscribe(sns, topic, queue)
    arns = {"queue": arn_of(queue), "topic": topic, "url": receiver.url("/hook")}
    put_targets(events, rule, *[{"Id": name, "Arn": arn} for name, arn in arns.items()])
    events.put_events(Entries=[{**entry(source), "TraceHeader": TRACE}])
    (post,) = receiver.wait_for("/hook")
    assert post.headers["x-amzn-trace-id"] == TRACE
    letters = receive(sqs, queue, VisibilityTimeout=0)
    assert [letter["Attributes"]["AWSTraceHeader"] for letter in letters] == [TRACE, TRACE]
    sqs.purge_queue(QueueUrl=queue)
    traced["events"].put_events(Entries=[entry(source)])
    assert all("AWSTraceHeader" in letter["Attributes"] for letter in receive(sqs, queue))
    answer = events.put_events(Entries=[{**entry(source), "TraceHeader": "a\r\nb: c"}])
    assert answer["Entries"][0]["ErrorCode"] == "InvalidArgument"


def test_header_that_is_no_trace_is_ignored(aws: Server, queue: str, source: str) -> None:
    sqs, events = aws.client("sqs"), aws.client("events")
    for tracing in (with_trace(sqs, "Root=é"), with_trace(events, "Root=é")):
        next(tracing)
    sqs.send_message(QueueUrl=queue, MessageBody="m")
    (message,) = receive(sqs, queue)
    assert "AWSTraceHeader" not in message["Attributes"]
    assert events.put_events(Entries=[entry(source)])["FailedEntryCount"] == 0


def test_names_and_types_of_message_attributes(sns: Any, sqs: Any, topic: str, queue: str) -> None:
    attributes = {
        "attr.1øßä": {"DataType": "String", "StringValue": "x"},
        "spaced": {"DataType": "String.  prefixed.", "StringValue": "y"},
    }
    subscribe(sns, topic, queue, RawMessageDelivery="true")
    sns.publish(TopicArn=topic, Message="m", MessageAttributes=attributes)
    sqs.send_message(QueueUrl=queue, MessageBody="m", MessageAttributes=attributes)
    received = [message["MessageAttributes"] for message in receive(sqs, queue)]
    assert received == [attributes, attributes]


def test_principal_of_a_subscription(sns: Any, topic: str, queue: str) -> None:
    arn = subscribe(sns, topic, queue)
    attributes = sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    assert attributes["SubscriptionPrincipal"] == f"arn:aws:iam::{ACCOUNT}:root"


def test_arns_that_name_no_subscription(sns: Any, topic: str) -> None:
    sns.unsubscribe(SubscriptionArn=f"{topic}:{uuid.uuid4()}")
    for arn in ("arn:aws:sns:us-east-1:111111111111:random", topic):
        assert error_of(sns.unsubscribe, SubscriptionArn=arn) == (
            "InvalidParameter",
            "Invalid parameter: SubscriptionId",
        )


def test_scope_goes_with_its_policy(sns: Any, topic: str, queue: str) -> None:
    policy = json.dumps({"a": {"b": ["x"]}})
    arn = subscribe(sns, topic, queue, FilterPolicy=policy, FilterPolicyScope="MessageBody")

    def change(name: str, value: str) -> dict[str, str]:
        sns.set_subscription_attributes(
            SubscriptionArn=arn, AttributeName=name, AttributeValue=value
        )
        return dict(sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"])

    attributes = change("FilterPolicy", "")
    assert not {"FilterPolicy", "FilterPolicyScope"} & set(attributes)
    change("FilterPolicyScope", "MessageBody")
    assert change("FilterPolicy", policy)["FilterPolicyScope"] == "MessageBody"


def test_tags_of_the_default_bus(events: Any) -> None:
    arn = events.describe_event_bus()["Arn"]
    tags = [{"Key": f"k-{uuid.uuid4().hex[:6]}", "Value": "v"}]
    events.tag_resource(ResourceARN=arn, Tags=tags)
    assert events.list_tags_for_resource(ResourceARN=arn)["Tags"] == tags
    events.untag_resource(ResourceARN=arn, TagKeys=[tags[0]["Key"]])
    assert events.list_tags_for_resource(ResourceARN=arn)["Tags"] == []
    with pytest.raises(events.exceptions.ResourceNotFoundException):
        events.tag_resource(ResourceARN=arn + "x", Tags=tags)


def test_queue_with_a_key_is_not_encrypted_by_sqs(sqs: Any, queue: str) -> None:
    def shown() -> str:
        answer = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["SqsManagedSseEnabled"])
        return str(answer["Attributes"]["SqsManagedSseEnabled"])

    assert shown() == "true"
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"KmsMasterKeyId": "alias/mine"})
    assert shown() == "false"
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"KmsMasterKeyId": ""})
    assert shown() == "true"


@pytest.mark.parametrize(
    ("operation", "params", "missing"),
    [
        ("send_message", {"MessageBody": "m"}, "QueueUrl"),
        ("send_message", {"QueueUrl": "q"}, "MessageBody"),
        ("delete_message", {"QueueUrl": "q"}, "ReceiptHandle"),
        ("delete_message_batch", {"QueueUrl": "q", "Entries": [{"ReceiptHandle": "x"}]},
         "Entries.1.Id"),
    ],
)  # fmt: skip
def test_required_parameters_of_sqs(
    aws: Server, operation: str, params: dict[str, Any], missing: str
) -> None:
    unchecked = aws.client("sqs", parameter_validation=False)
    assert error_of(getattr(unchecked, operation), **params) == (
        "MissingParameter",
        f"The request must contain the parameter {missing}.",
    )


def test_attempt_ids_are_refused_on_standard_queues(sqs: Any, queue: str) -> None:
    error = error_of(sqs.receive_message, QueueUrl=queue, ReceiveRequestAttemptId="one")
    assert error == (
        "InvalidParameterValue",
        "Value one for parameter ReceiveRequestAttemptId is invalid. Reason: The request include "
        "parameter that is not valid for this queue type.",
    )


def test_words_of_sqs(sqs: Any, queue: str) -> None:
    tags = {str(number): "" for number in range(51)}
    with pytest.raises(ClientError) as caught:
        sqs.tag_queue(QueueUrl=queue, Tags=tags)
    error = caught.value.response["Error"]
    assert error["Code"] == "InvalidParameterValue"
    assert error["QueryErrorCode"] == "InvalidParameterValueException"
    assert error["Message"] == f"Too many tags added for queue {queue.rpartition('/')[2]}."
