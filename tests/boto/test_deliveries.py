"""Deliveries: to receivers that are slow, broken, or lie; by webhook and e-mail."""

import base64
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from email.header import decode_header, make_header
from email.message import Message
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.mailbox import Mailbox
from support.plain_http import ask
from support.receiver import Receiver, endless, hang, nonsense, slam, status
from support.server import Server, eventually

AT_ONCE = json.dumps({"healthyRetryPolicy": {"numRetries": 2, "numNoDelayRetries": 2}})
"""Two retries without a delay."""


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    mailbox.start()
    yield mailbox
    mailbox.stop()


@pytest.fixture(scope="module")
def delivering(make_server: Callable[..., Server], mailbox: Mailbox) -> Server:
    return make_server(
        smtp_host="127.0.0.1",
        smtp_port=str(mailbox.port),
        mail_sender="sagehen@example.org",
        delivery_timeout_seconds="3",
        max_receiver_deliveries="2",
        max_long_polls="1",
    )


@pytest.fixture(scope="module")
def sns(delivering: Server) -> Any:
    return delivering.client("sns")


@pytest.fixture(scope="module")
def sqs(delivering: Server) -> Any:
    return delivering.client("sqs")


@pytest.fixture
def topic(sns: Any) -> Iterator[str]:
    arn = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    yield arn
    sns.delete_topic(TopicArn=arn)


def subscribe(sns: Any, receiver: Receiver, topic: str, path: str, **attributes: str) -> str:
    arn = sns.subscribe(
        TopicArn=topic,
        Protocol="http",
        Endpoint=receiver.url(path),
        Attributes=attributes,
        ReturnSubscriptionArn=True,
    )["SubscriptionArn"]
    receiver.confirm(path)
    return str(arn)


def dead_letters(sqs: Any) -> tuple[str, str]:
    """The URL of a new queue, and a RedrivePolicy to it."""
    url = sqs.create_queue(QueueName=f"dead-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return url, json.dumps({"deadLetterTargetArn": told["QueueArn"]})


def received(sqs: Any, url: str, seconds: int = 20) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=seconds, MaxNumberOfMessages=10)
    return [json.loads(one["Body"]) for one in answer.get("Messages", [])]


def letters(sqs: Any, url: str) -> list[dict[str, Any]]:
    """The same, once there are some."""
    found: list[dict[str, Any]] = []

    def have_come() -> bool:
        found.extend(received(sqs, url))
        return bool(found)

    eventually(have_come)
    return found


def test_what_fails_is_tried_again_with_the_same_id(
    sns: Any, receiver: Receiver, topic: str
) -> None:
    subscribe(sns, receiver, topic, "/a", DeliveryPolicy=AT_ONCE)
    receiver.answers["/a"] = [status(500), slam, status(200)]
    message_id = sns.publish(TopicArn=topic, Message="m")["MessageId"]
    posts = receiver.wait_for("/a", "Notification", count=3)
    assert [post.json["MessageId"] for post in posts] == [message_id] * 3
    assert {post.headers["x-amz-sns-message-id"] for post in posts} == {message_id}
    assert len({post.body for post in posts}) == 1


@pytest.mark.parametrize(
    ("answer", "retries"),
    [(hang, 0), (nonsense, 1), (slam, 1), (status(503), 1), (status(100), 0)],
)
def test_who_never_accepts_is_given_up(
    sns: Any, sqs: Any, receiver: Receiver, topic: str, answer: Any, retries: int
) -> None:
    url, redrive = dead_letters(sqs)
    retrying = {"numRetries": retries, "numNoDelayRetries": retries}
    policy = json.dumps({"healthyRetryPolicy": retrying})
    subscribe(sns, receiver, topic, "/a", DeliveryPolicy=policy, RedrivePolicy=redrive)
    receiver.answers["/a"] = [answer]
    message_id = sns.publish(TopicArn=topic, Message="m")["MessageId"]
    (letter,) = letters(sqs, url)
    assert (letter["MessageId"], letter["Message"]) == (message_id, "m")
    assert len(receiver.at("/a", "Notification")) == 1 + retries


@pytest.mark.parametrize("code", [301, 307, 400, 404, 429])
def test_refusals_and_redirects_are_final(
    sns: Any, sqs: Any, receiver: Receiver, topic: str, code: int
) -> None:
    url, redrive = dead_letters(sqs)
    subscribe(sns, receiver, topic, "/a", DeliveryPolicy=AT_ONCE, RedrivePolicy=redrive)
    receiver.answers["/a"] = [status(code, Location=receiver.url("/elsewhere"))]
    sns.publish(TopicArn=topic, Message="m")
    assert [letter["Message"] for letter in letters(sqs, url)] == ["m"]
    assert len(receiver.at("/a", "Notification")) == 1
    assert receiver.at("/elsewhere") == []


def test_an_endless_answer_is_as_good_as_its_status(
    sns: Any, sqs: Any, receiver: Receiver, topic: str
) -> None:
    url, redrive = dead_letters(sqs)
    subscribe(sns, receiver, topic, "/a", DeliveryPolicy=AT_ONCE, RedrivePolicy=redrive)
    receiver.answers["/a"] = [endless]
    for n in range(5):
        sns.publish(TopicArn=topic, Message=str(n))
    posts = receiver.wait_for("/a", "Notification", count=5)
    assert sorted(post.json["Message"] for post in posts) == list("01234")
    assert received(sqs, url, seconds=1) == []
    assert len(receiver.at("/a", "Notification")) == 5


def test_one_that_hangs_does_not_hold_up_another(sns: Any, receiver: Receiver, topic: str) -> None:
    stuck = Receiver()
    try:
        subscribe(sns, stuck, topic, "/stuck")
        subscribe(sns, receiver, topic, "/well")
        stuck.answers["/stuck"] = [hang]
        began = time.monotonic()
        for n in range(20):
            sns.publish(TopicArn=topic, Message=str(n))
        receiver.wait_for("/well", "Notification", count=20)
        asked = [post.at - began for post in stuck.at("/stuck", "Notification")]
        # Three seconds each, two at a time: half a minute, behind which the others would come.
        assert len(asked) < 20
        assert len(asked) <= 2 * (1 + max(asked, default=0) / 3)
    finally:
        stuck.close()


def test_no_faster_than_the_policy_says(sns: Any, receiver: Receiver, topic: str) -> None:
    policy = json.dumps({"throttlePolicy": {"maxReceivesPerSecond": 5}})
    subscribe(sns, receiver, topic, "/a", DeliveryPolicy=policy)
    entries = [{"Id": str(n), "Message": "m"} for n in range(10)]
    began = time.monotonic()
    sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    posts = receiver.wait_for("/a", "Notification", count=10)
    # Five at once, as a second's worth was saved, and then one each fifth of a second.
    assert posts[9].at - began >= 0.95


def test_a_mail_is_confirmed_by_its_link_and_ends_by_its_link(
    sns: Any, mailbox: Mailbox, topic: str
) -> None:
    box, address = mailbox, "Reader@example.org"
    asked = sns.subscribe(TopicArn=topic, Protocol="email", Endpoint=address)
    assert asked["SubscriptionArn"] == "pending confirmation"
    eventually(lambda: len(box.to(address)) == 1)
    confirmation = box.to(address)[0]
    assert confirmation["Subject"] == "AWS Notification - Subscription Confirmation"
    assert topic in text_of(confirmation)
    follow(text_of(confirmation), "Action=ConfirmSubscription")
    sns.publish(TopicArn=topic, Message="Häppy\n" + "x" * 2000)
    eventually(lambda: len(box.to(address)) == 2)
    mail = box.to(address)[1]
    assert mail["Subject"] == "AWS Notification Message"
    assert mail["From"] == "sagehen@example.org"
    assert text_of(mail).startswith("Häppy\n" + "x" * 2000 + "\n\n--\n")
    follow(text_of(mail), "Action=Unsubscribe")
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_mail_as_json_and_with_a_subject(sns: Any, sqs: Any, mailbox: Mailbox, topic: str) -> None:
    box, address = mailbox, "json@example.org"
    url, redrive = dead_letters(sqs)
    sns.subscribe(
        TopicArn=topic,
        Protocol="email-json",
        Endpoint=address,
        Attributes={"RedrivePolicy": redrive},
    )
    eventually(lambda: len(box.to(address)) == 1)
    follow(text_of(box.to(address)[0]), "Action=ConfirmSubscription")
    name = "Ä, Team"
    sns.set_topic_attributes(TopicArn=topic, AttributeName="DisplayName", AttributeValue=name)
    sent = sns.publish(TopicArn=topic, Message="m", Subject="About it")
    eventually(lambda: len(box.to(address)) == 2)
    mail = box.to(address)[1]
    assert mail["Subject"] == "About it"
    sender = str(make_header(decode_header(mail["From"])))
    assert sender == f"{name} <sagehen@example.org>"
    assert json.loads(text_of(mail))["MessageId"] == sent["MessageId"]
    box.refusals.append("554 No")
    sns.publish(TopicArn=topic, Message="unwanted")
    assert [letter["Message"] for letter in letters(sqs, url)] == ["unwanted"]


def text_of(mail: Message) -> str:
    payload = mail.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode().replace("\r\n", "\n")


def follow(text: str, what: str) -> None:
    (link,) = [word for word in text.split() if what in word]
    assert ask(link).status == 200


def test_webhooks(sns: Any, receiver: Receiver, topic: str) -> None:
    arn = sns.subscribe(TopicArn=topic, Protocol="webhook", Endpoint=receiver.url("/hook"))
    told = sns.get_subscription_attributes(SubscriptionArn=arn["SubscriptionArn"])["Attributes"]
    assert told["PendingConfirmation"] == "false"
    secret = told["WebhookSecret"]
    assert secret.startswith("whsec_")
    receiver.answers["/hook"] = [status(410)]
    message = '{"invocationStatus":"Completed","ü":1}'
    message_id = sns.publish(TopicArn=topic, Message=message)["MessageId"]
    (post,) = receiver.wait_for("/hook")
    assert post.body == message.encode()
    assert post.headers["content-type"] == "application/json"
    assert post.headers["webhook-id"] == message_id
    assert abs(int(post.headers["webhook-timestamp"]) - time.time()) < 300
    signed = f"{message_id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{expected}"


def test_a_webhook_with_a_secret_of_one_s_own(sns: Any, receiver: Receiver, topic: str) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    arn = sns.subscribe(
        TopicArn=topic,
        Protocol="webhook",
        Endpoint=receiver.url("/hook"),
        Attributes={"WebhookSecret": secret, "DeliveryPolicy": AT_ONCE},
    )["SubscriptionArn"]
    told = sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    assert told["WebhookSecret"] == secret
    # To Standard Webhooks, unlike to SNS, a 404 is no final answer.
    receiver.answers["/hook"] = [status(404), status(302), status(204)]
    sns.publish(TopicArn=topic, Message="m")
    posts = receiver.wait_for("/hook", count=3)
    assert len({post.headers["webhook-id"] for post in posts}) == 1


def test_a_server_that_stops_does_not_wait_for_long_polls(delivering: Server) -> None:
    sqs = delivering.client("sqs")
    queue = sqs.create_queue(QueueName="empty")["QueueUrl"]
    answers: list[Any] = []

    def poll() -> None:
        while not answers:
            try:
                answers.append(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))
            except BotoCoreError as error:
                answers.append(error)
            except ClientError:
                pass  # The other one was faster.

    poller = threading.Thread(target=poll)
    poller.start()

    def waits() -> bool:
        # One may wait at a time: whoever would be the second is refused.
        try:
            sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1)
        except ClientError as error:
            return error.response["Error"]["Code"] == "RequestThrottled"
        return False

    eventually(waits)
    assert poller.is_alive()
    began = time.monotonic()
    assert delivering.stop() == 0
    assert time.monotonic() - began < 15
    poller.join(120)
    assert len(answers) == 1
