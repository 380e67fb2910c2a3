"""Asynchronous endpoints with the AWS CLI: invoked, their notices read, their metrics looked at."""

import json
import time

import pytest

from support.asynchronous import BUCKET, AsyncEndpoint

TOPIC = "arn:aws:sns:us-east-1:000000000000:cli-results"


@pytest.fixture(scope="module")
def sqs(cli):
    """`sqs("list-queues")`: in most regions version 1 of the CLI has an address of its own for SQS,
    which only an option and what `sagehen env` sets go before."""

    def run(command, *more):
        return cli.json(f"sqs {command}", *more)

    return run


@pytest.fixture(scope="module")
def queue(cli, sqs):
    """The URL of a queue that the topic of all results is subscribed to."""
    assert cli.json("sns create-topic --name cli-results") == {"TopicArn": TOPIC}
    url = sqs("create-queue --queue-name cli-results")["QueueUrl"]
    asked = sqs(f"get-queue-attributes --queue-url {url} --attribute-names QueueArn")
    queue_arn = asked["Attributes"]["QueueArn"]
    subscribe = f"sns subscribe --topic-arn {TOPIC} --protocol sqs --notification-endpoint"
    assert cli.json(subscribe, queue_arn)["SubscriptionArn"].startswith(f"{TOPIC}:")
    return url


@pytest.fixture(scope="module")
def endpoint(cli, deploy, queue):
    endpoint = AsyncEndpoint(
        deploy,
        "by-cli",
        S3FailurePath=f"s3://{BUCKET}/by-cli/failed",
        NotificationConfig={"SuccessTopic": TOPIC, "ErrorTopic": TOPIC},
    )
    assert endpoint.described["EndpointStatus"] == "InService"
    # First of all: its metrics are there some seconds later, when they are asked for.
    endpoint.invoke(InferenceId="measured")
    return endpoint


def receive(sqs, queue):
    """The messages that come next, without SNS's JSON around them."""
    receive = f"receive-message --queue-url {queue} --wait-time-seconds 20"
    # It prints nothing where nothing has come in these 20 s.
    messages = (sqs(f"{receive} --max-number-of-messages 10") or {}).get("Messages", [])
    for message in messages:
        sqs(f"delete-message --queue-url {queue} --receipt-handle", message["ReceiptHandle"])
    return [json.loads(message["Body"])["Message"] for message in messages]


def received(sqs, queue, inference_id):
    """What the queue was told of that request."""
    while True:
        for told in map(json.loads, receive(sqs, queue)):
            if told.get("inferenceId") == inference_id:
                return told


def comes(sqs, queue, message):
    """Wait until it does, behind what other tests have had sent."""
    while message not in receive(sqs, queue):
        pass


def test_a_message_goes_through_a_topic_into_a_queue(cli, sqs, queue):
    cli(f"sns publish --topic-arn {TOPIC} --message hello --subject Greeting")
    comes(sqs, queue, "hello")
    topics = cli.json("sns list-topics")["Topics"]
    assert {"TopicArn": TOPIC} in topics
    (one,) = cli.json(f"sns list-subscriptions-by-topic --topic-arn {TOPIC}")["Subscriptions"]
    assert one["Protocol"] == "sqs"


def test_an_input_is_uploaded_and_its_answer_read(cli, sqs, queue, endpoint, tmp_path):
    (tmp_path / "in.json").write_text("[1, 2]")
    # It tells S3 from the name that this is application/json.
    cli("s3 cp", tmp_path / "in.json", f"s3://{BUCKET}/by-cli/in.json")
    invoke = "sagemaker-runtime invoke-endpoint-async --endpoint-name by-cli --input-location"
    told = cli.json(invoke, f"s3://{BUCKET}/by-cli/in.json")
    assert set(told) == {"OutputLocation", "FailureLocation", "InferenceId"}
    notice = received(sqs, queue, told["InferenceId"])
    assert notice["invocationStatus"] == "Completed"
    assert notice["responseParameters"]["outputLocation"] == told["OutputLocation"]
    assert json.loads(cli("s3 cp", told["OutputLocation"], "-")) == [2, 4]


def test_a_failure_is_told(cli, sqs, queue, endpoint):
    invoke = "sagemaker-runtime invoke-endpoint-async --endpoint-name by-cli --inference-id cli-bad"
    told = cli.json(f"{invoke} --input-location s3://{BUCKET}/by-cli/nothing")
    notice = received(sqs, queue, "cli-bad")
    assert notice["invocationStatus"] == "Failed"
    assert "There is no object by-cli/nothing" in notice["failureReason"]
    assert "There is no object by-cli/nothing" in cli("s3 cp", told["FailureLocation"], "-")


def test_a_refusal_is_told(cli, endpoint):
    invoke = "sagemaker-runtime invoke-endpoint-async --endpoint-name nowhere --input-location"
    status, _, wrong = cli.run(invoke, "s3://b/k")
    assert status != 0
    assert "(ValidationError)" in wrong
    assert "nowhere" in wrong


def test_metrics_of_the_endpoint(cli, endpoint, wait_until):
    endpoint.ended("measured")
    now = time.time()
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    begin, end = (time.strftime(stamp, time.gmtime(now + aside)) for aside in (-3600, 3600))
    get = (
        "cloudwatch get-metric-statistics --namespace AWS/SageMaker --period 60 "
        f"--start-time {begin} --end-time {end} --dimensions Name=EndpointName,Value=by-cli"
    )

    def points(*more):
        return cli.json(get, *more)["Datapoints"]

    variant = "Name=VariantName,Value=AllTraffic"
    words = ("--metric-name", "InvocationsProcesssed", "--statistics", "Sum")
    wait_until(lambda: sum(one["Sum"] for one in points(variant, *words)) >= 1)
    backlog = ("--metric-name", "ApproximateBacklogSize", "--statistics", "Maximum")
    wait_until(lambda: [one["Unit"] for one in points(*backlog)][:1] == ["Count"])
    listing = "cloudwatch list-metrics --namespace AWS/SageMaker --dimensions"
    told = cli.json(f"{listing} Name=EndpointName,Value=by-cli")
    assert "HasBacklogWithoutCapacity" in {one["MetricName"] for one in told["Metrics"]}
