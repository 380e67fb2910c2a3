"""Targets that are called by HTTP, as the outbox knows them."""

import random
from typing import Any

import msgspec
import pytest

from sagehen.services.messaging.events.deliveries import (
    EventMessage,
    EventTexts,
    TargetDestination,
    api_destination,
    webhook_destination,
)
from sagehen.services.messaging.events.records import EventResource, RuleRecord, TargetRecord
from sagehen.services.messaging.outbox.destinations import DeliveryAttempt, DeliveryResult
from sagehen.services.messaging.outbox.outbox import next_delay
from sagehen.services.messaging.webhooks import new_secret
from support.deliveries import make_delivery

SECRET = new_secret()

RULE = RuleRecord(
    name="r.1",
    arn="arn:aws:events:us-east-1:000000000000:rule/r.1",
    state="ENABLED",
    event_pattern="{}",
    created_at=1,
)


def target(arn: str, **members: Any) -> TargetRecord:
    definition = {"Id": "t_1", "Arn": arn, **members}
    return TargetRecord(
        rule_name="r.1", target_id="t_1", target_arn=arn, definition=definition, secret=SECRET
    )


def resource(**definition: Any) -> EventResource:
    return EventResource(name="n", arn="arn", definition=definition, created_at=1, modified_at=1)


ARN = "arn:aws:events:us-east-1:000000000000:api-destination/n/1"
DESTINATION = resource(
    InvocationEndpoint="https://host/*/x/*", HttpMethod="PUT", InvocationRateLimitPerSecond=7
)
CONNECTION = resource(
    AuthParameters={
        "BasicAuthParameters": {"Username": "u", "Password": "p"},
        "InvocationHttpParameters": {
            "HeaderParameters": [{"Key": "X-Key", "Value": "theirs"}],
            "QueryStringParameters": [{"Key": "q", "Value": "theirs"}],
        },
    }
)
TEXTS = EventTexts(input="{}", event='{"id":"1"}')
MESSAGE = EventMessage(message_id="m", published_at=5, message=msgspec.json.encode(TEXTS).decode())


def test_a_url_gets_the_target_s_query_behind_its_own() -> None:
    http = {"QueryStringParameters": {"b": "x y"}, "HeaderParameters": {"h": "v"}}
    destination = webhook_destination(RULE, target("https://host/a?a=1#f", HttpParameters=http))
    assert destination.endpoint == "https://host/a?a=1&b=x+y#f"
    assert destination.headers == {"h": "v"}
    assert destination.method is None
    assert destination.max_per_second is None


def test_what_a_connection_says_wins_over_the_target() -> None:
    http = {
        "PathParameterValues": ["a/b", "c"],
        "HeaderParameters": {"X-Key": "mine", "X-Other": "o"},
        "QueryStringParameters": {"q": "mine"},
    }
    retries = {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 60}
    given = target(ARN, HttpParameters=http, RetryPolicy=retries)
    destination = api_destination(RULE, given, DESTINATION, CONNECTION)
    assert destination.endpoint == "https://host/a%2Fb/x/c?q=theirs"
    assert destination.headers == {
        "X-Key": "theirs",
        "X-Other": "o",
        "Authorization": "Basic dTpw",
    }
    assert destination.method == "PUT"
    assert len(destination.retry_delays) == 3
    assert destination.max_age_seconds == 60
    assert destination.max_per_second == 7


def test_secrets_are_not_shown() -> None:
    shown = repr(api_destination(RULE, target(ARN), DESTINATION, CONNECTION))
    shown += repr(webhook_destination(RULE, target("https://u:password@host/")))
    for secret in ("dTpw", SECRET, "password", "theirs"):
        assert secret not in shown


def test_events_are_tried_185_times_within_a_day() -> None:
    destination = webhook_destination(RULE, target("https://host/"))
    assert len(destination.retry_delays) == 185
    assert destination.retry_delays[0] == 1
    assert sum(destination.retry_delays) == pytest.approx(86_400)
    assert destination.max_age_seconds == 86_400
    never = target("https://host/", RetryPolicy={"MaximumRetryAttempts": 0})
    assert webhook_destination(RULE, never).retry_delays == ()


def test_an_event_that_would_be_too_old_is_not_tried_again() -> None:
    retries = {"MaximumEventAgeInSeconds": 60}
    destination = webhook_destination(RULE, target("https://host/", RetryPolicy=retries))

    def is_tried_again(attempts: int) -> bool:
        delivery = make_delivery(
            msgspec.structs.replace(MESSAGE, published_at=0), attempts=attempts
        )
        attempt = DeliveryAttempt(delivery=delivery, destination=destination)
        return next_delay(attempt, random.Random(5), now=0) is not None

    # No time passes here: the first delay beyond a minute is one too many.
    assert 6 <= sum(map(is_tried_again, range(20))) <= 7


def test_an_api_gets_the_input_with_its_headers() -> None:
    destination = api_destination(RULE, target(ARN), DESTINATION, CONNECTION)
    request = destination.compose(make_delivery(MESSAGE), now=9)
    assert (request.method, request.body) == ("PUT", b"{}")
    assert request.headers["Authorization"] == "Basic dTpw"
    assert request.headers["User-Agent"] == "Amazon/EventBridge/ApiDestinations"
    assert "webhook-id" not in request.headers


def test_a_get_has_no_body() -> None:
    reading = resource(InvocationEndpoint="https://host/", HttpMethod="GET")
    destination = api_destination(RULE, target(ARN), reading, CONNECTION)
    assert destination.compose(make_delivery(MESSAGE), now=9).body == b""


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (204, DeliveryResult.ACCEPTED),
        (301, DeliveryResult.REFUSED),
        (400, DeliveryResult.REFUSED),
        (409, DeliveryResult.FAILED),
        (429, DeliveryResult.FAILED),
        (503, DeliveryResult.FAILED),
    ],
)
def test_what_an_api_answers(status: int, result: DeliveryResult) -> None:
    destination = api_destination(RULE, target(ARN), DESTINATION, CONNECTION)
    assert destination.compose(make_delivery(MESSAGE), now=9).result_of(status) is result


def test_a_webhook_is_signed_with_its_target_s_secret() -> None:
    destination: TargetDestination = webhook_destination(RULE, target("https://host/"))
    request = destination.compose(make_delivery(MESSAGE), now=9)
    assert (request.method, request.headers["webhook-timestamp"]) == ("POST", "9")
    assert request.headers["webhook-id"] == "m"
    assert request.result_of(410) is DeliveryResult.REFUSED
    assert request.result_of(404) is DeliveryResult.FAILED
