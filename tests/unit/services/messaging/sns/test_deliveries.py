"""Subscriptions as destinations: their retries, and the requests and mails they get."""

import json

import pytest

from sagehen.services.messaging.outbox.destinations import (
    Delivery,
    DeliveryResult,
    HttpRequest,
    Mail,
)
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.deliveries import SubscriptionDestination, SubscriptionResolver
from sagehen.services.messaging.sns.envelopes import Envelope, Links
from sagehen.services.messaging.sns.records import (
    Notice,
    PostKind,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.webhooks import new_secret
from sagehen.state.database import Database
from support.deliveries import make_delivery

TOPIC = "arn:aws:sns:us-east-1:000000000000:t"
ARN = f"{TOPIC}:1"
LINKS = Links("http://host", "/c.pem")


def seal(envelope: Envelope) -> str:
    return json.dumps({"Type": envelope.kind, "Message": envelope.message, "T": envelope.token})


def resolve(
    database: Database, protocol: str, endpoint: str = "http://receiver/", **attributes: str
) -> SubscriptionDestination:
    record = SubscriptionRecord(
        arn=ARN,
        topic_arn=TOPIC,
        protocol=protocol,
        endpoint=endpoint,
        state=SubscriptionState.CONFIRMED,
        created_at=0,
        attributes=attributes,
        token="token",
        token_expires_at=1e9,
    )
    with database.write() as connection:
        topics.insert(connection, TopicRecord(arn=TOPIC, created_at=0, attributes={}))
        subscriptions.update_record(connection, record)
        subscriptions.insert(connection, record)
        destination = SubscriptionResolver(seal, LINKS)(connection, ARN)
    assert destination is not None
    return destination


def notice_delivery(kind: PostKind = PostKind.NOTIFICATION, message: str = "hello") -> Delivery:
    notice = Notice(message_id="m", topic_arn=TOPIC, message=message, published_at=0)
    return make_delivery(notice, kind, delivery_id=7)


def request_of(destination: SubscriptionDestination, delivery: Delivery) -> HttpRequest:
    request = destination.compose(delivery, now=9)
    assert isinstance(request, HttpRequest)
    return request


def mail_of(destination: SubscriptionDestination, delivery: Delivery) -> Mail:
    mail = destination.compose(delivery, now=9)
    assert isinstance(mail, Mail)
    return mail


def test_each_protocol_has_its_own_schedule(database: Database) -> None:
    def delays(protocol: str, **attributes: str) -> list[float]:
        return list(resolve(database, protocol, **attributes).retry_delays)

    assert delays("http") == delays("https") == [20, 20, 20]
    assert len(delays("email")) == len(delays("email-json")) == 50
    assert len(delays("webhook")) == 9
    policy = json.dumps({"healthyRetryPolicy": {"numRetries": 2, "numNoDelayRetries": 2}})
    assert delays("https", DeliveryPolicy=policy) == [0, 0]
    assert delays("webhook", DeliveryPolicy=policy) == [0, 0]
    none = json.dumps({"healthyRetryPolicy": {"numRetries": 0}})
    assert delays("http", DeliveryPolicy=none) == []


def test_a_throttle_policy_limits_the_rate(database: Database) -> None:
    policy = json.dumps({"throttlePolicy": {"maxReceivesPerSecond": 4}})
    assert resolve(database, "http", DeliveryPolicy=policy).max_per_second == 4
    assert resolve(database, "http").max_per_second is None


def test_without_its_topic_it_has_no_destination(database: Database) -> None:
    resolve(database, "http")
    with database.write() as connection:
        topics.delete(connection, TOPIC)
        assert SubscriptionResolver(seal, LINKS)(connection, ARN) is None


def test_a_notification_is_sealed(database: Database) -> None:
    request = request_of(resolve(database, "http"), notice_delivery())
    assert json.loads(request.body) == {"Type": "Notification", "Message": "hello", "T": None}
    assert (request.url, request.method) == ("http://receiver/", "POST")
    assert request.headers["x-amz-sns-subscription-arn"] == ARN
    assert request.headers["Content-Type"] == "text/plain; charset=UTF-8"
    assert "x-amz-sns-rawdelivery" not in request.headers


def test_a_raw_notification_is_the_text_alone(database: Database) -> None:
    raw = resolve(database, "http", RawMessageDelivery="true")
    request = request_of(raw, notice_delivery())
    assert request.body == b"hello"
    assert request.headers["x-amz-sns-rawdelivery"] == "true"
    confirmation = request_of(raw, notice_delivery(PostKind.SUBSCRIPTION_CONFIRMATION))
    assert json.loads(confirmation.body)["T"] == "token"
    assert "x-amz-sns-rawdelivery" not in confirmation.headers
    assert "x-amz-sns-subscription-arn" not in confirmation.headers


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, DeliveryResult.ACCEPTED),
        (302, DeliveryResult.REFUSED),
        (429, DeliveryResult.REFUSED),
        (500, DeliveryResult.FAILED),
    ],
)
def test_what_a_receiver_answers(database: Database, status: int, result: DeliveryResult) -> None:
    assert request_of(resolve(database, "http"), notice_delivery()).result_of(status) is result


def test_a_webhook_is_signed(database: Database) -> None:
    destination = resolve(database, "webhook", WebhookSecret=new_secret())
    request = request_of(destination, notice_delivery())
    assert request.body == b"hello"
    assert request.headers["webhook-timestamp"] == "9"
    assert request.headers["Content-Type"] == "application/json"


def test_a_mail_has_a_link_to_unsubscribe(database: Database) -> None:
    mail = mail_of(resolve(database, "email", "reader@example.org"), notice_delivery())
    assert (mail.recipient, mail.subject) == ("reader@example.org", "AWS Notification Message")
    assert mail.message_id == "m.7"
    assert mail.text.startswith("hello\n\n--\n")
    assert f"http://host/?Action=Unsubscribe&SubscriptionArn={ARN}" in mail.text


def test_a_mail_asks_to_confirm(database: Database) -> None:
    destination = resolve(database, "email-json", "reader@example.org")
    mail = mail_of(destination, notice_delivery(PostKind.SUBSCRIPTION_CONFIRMATION))
    assert mail.subject == "AWS Notification - Subscription Confirmation"
    assert "Action=ConfirmSubscription" in mail.text
    assert "Token=token" in mail.text
    assert json.loads(mail_of(destination, notice_delivery()).text)["Message"] == "hello"


def test_a_protocol_that_is_not_delivered(database: Database) -> None:
    with pytest.raises(ValueError, match="sms"):
        resolve(database, "sms").compose(notice_delivery(), now=9)


def test_secrets_are_not_shown(database: Database) -> None:
    secret = new_secret()
    destination = resolve(database, "webhook", "http://u:password@host/", WebhookSecret=secret)
    assert secret not in repr(destination)
    assert "password" not in repr(destination)
    assert "'token'" not in repr(destination)
