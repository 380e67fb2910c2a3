"""Targets that are called by HTTP, as the deliverer knows them."""

import json
from typing import Any

from sagehen.services.messaging.events.deliveries import (
    address_of,
    as_api,
    as_webhook,
    is_address,
    read_address,
)
from sagehen.services.messaging.events.records import EventResource, RuleRecord, TargetRecord

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
        rule_name="r.1", target_id="t_1", target_arn=arn, definition=definition, secret="whsec_x"
    )


def resource(**definition: Any) -> EventResource:
    return EventResource(name="n", arn="arn", definition=definition, created_at=1, modified_at=1)


def test_addresses_lead_back_to_the_target() -> None:
    address = address_of(RULE, "t_1")
    assert is_address(address)
    assert read_address(address) == ("r.1", "t_1")
    assert not is_address("arn:aws:sns:us-east-1:000000000000:topic:id")
    assert not is_address("s")


def test_a_url_gets_the_target_s_query_behind_its_own() -> None:
    http = {"QueryStringParameters": {"b": "x y"}, "HeaderParameters": {"h": "v"}}
    receiver, topic = as_webhook(RULE, target("https://host/a?a=1#f", HttpParameters=http))
    assert receiver.endpoint == "https://host/a?a=1&b=x+y#f"
    assert json.loads(receiver.attributes["Headers"]) == {"h": "v"}
    assert "Method" not in receiver.attributes
    assert topic.attributes == {}


def test_what_a_connection_says_wins_over_the_target() -> None:
    http = {
        "PathParameterValues": ["a/b", "c"],
        "HeaderParameters": {"X-Key": "mine", "X-Other": "o"},
        "QueryStringParameters": {"q": "mine"},
    }
    destination = resource(
        InvocationEndpoint="https://host/*/x/*",
        HttpMethod="PUT",
        InvocationRateLimitPerSecond=7,
    )
    connection = resource(
        AuthParameters={
            "BasicAuthParameters": {"Username": "u", "Password": "p"},
            "InvocationHttpParameters": {
                "HeaderParameters": [{"Key": "X-Key", "Value": "theirs"}],
                "QueryStringParameters": [{"Key": "q", "Value": "theirs"}],
            },
        }
    )
    retries = {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 60}
    arn = "arn:aws:events:us-east-1:000000000000:api-destination/n/1"
    given = target(arn, HttpParameters=http, RetryPolicy=retries)
    receiver, topic = as_api(RULE, given, destination, connection)
    assert receiver.endpoint == "https://host/a%2Fb/x/c?q=theirs"
    assert json.loads(receiver.attributes["Headers"]) == {
        "X-Key": "theirs",
        "X-Other": "o",
        "Authorization": "Basic dTpw",
    }
    assert receiver.attributes["Method"] == "PUT"
    assert receiver.attributes["MaximumRetryAttempts"] == "3"
    assert receiver.attributes["MaximumEventAgeInSeconds"] == "60"
    assert '"maxReceivesPerSecond":7' in topic.attributes["DeliveryPolicy"]
