"""Subscriptions in the database. With either database."""

from typing import Any

from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
)
from sagehen.state.database import Database

TOPIC = "arn:aws:sns:us-east-1:000000000000:topic"


def record(name: str, **fields: Any) -> SubscriptionRecord:
    values: dict[str, Any] = {
        "arn": f"{TOPIC}:{name}",
        "topic_arn": TOPIC,
        "protocol": "http",
        "endpoint": f"http://{name}",
        "state": SubscriptionState.CONFIRMED,
        "created_at": 1,
        "attributes": {},
        "token": name,
        "token_expires_at": 100,
    }
    return SubscriptionRecord(**{**values, **fields})


def test_one_subscription_of_a_kind_until_it_is_deleted(any_database: Database) -> None:
    first = record("a")
    arn = first.arn
    with any_database.write() as connection:
        assert subscriptions.insert(connection, first)
        found = subscriptions.find(connection, TOPIC, "http", "http://a")
        assert found is not None
        assert found.arn == arn
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        same = SubscriptionRecord(**{**fields, "arn": arn + "2", "token": "other"})
        assert not subscriptions.insert(connection, same)
        deleted = SubscriptionRecord(**{**fields, "state": SubscriptionState.DELETED})
        subscriptions.update_record(connection, deleted)
        assert subscriptions.find(connection, TOPIC, "http", "http://a") is None
        assert subscriptions.insert(connection, same)
        assert subscriptions.count(connection, TOPIC) == {
            SubscriptionState.PENDING: 0,
            SubscriptionState.CONFIRMED: 1,
            SubscriptionState.DELETED: 1,
        }
        assert subscriptions.drop_expired(connection, now=100, limit=10) == 1
        assert subscriptions.get(connection, arn) is None


def test_tokens_lead_to_any_subscription(any_database: Database) -> None:
    gone = record("a", state=SubscriptionState.DELETED)
    with any_database.write() as connection:
        subscriptions.insert(connection, gone)
        assert subscriptions.by_token(connection, "a", lock=True) == gone
        assert subscriptions.by_token(connection, "b") is None


def test_pages_and_filters_pass_over_what_is_deleted(any_database: Database) -> None:
    policy = {"FilterPolicy": "{}"}
    with any_database.write() as connection:
        for name, fields in (
            ("a", {"attributes": policy}),
            ("b", {"state": SubscriptionState.DELETED, "attributes": policy}),
            ("c", {"state": SubscriptionState.PENDING}),
            ("d", {"topic_arn": f"{TOPIC}2"}),
        ):
            subscriptions.insert(connection, record(name, **fields))
        page = subscriptions.page(connection, TOPIC, "", 10)
        assert [one.token for one in page] == ["a", "c"]
        rest = subscriptions.page(connection, None, f"{TOPIC}:a", 10)
        assert [one.token for one in rest] == ["c", "d"]
        assert [one.token for one in subscriptions.confirmed(connection, TOPIC)] == ["a"]
        assert subscriptions.count_filtered(connection, TOPIC) == 1
        subscriptions.drop_all(connection, TOPIC)
        assert [one.token for one in subscriptions.page(connection, None, "", 10)] == ["d"]
