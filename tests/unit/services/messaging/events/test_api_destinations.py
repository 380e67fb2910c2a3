"""API destinations: they need a connection that exists, and a URL."""

from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.api_destinations import (
    create_api_destination,
    delete_api_destination,
    describe_api_destination,
    list_api_destinations,
    update_api_destination,
)
from sagehen.services.messaging.events.connections import create_connection
from sagehen.wire.errors import AwsError


@pytest.fixture
def arn(call: RequestContext) -> str:
    basic = {"BasicAuthParameters": {"Username": "u", "Password": "p"}}
    params = {"Name": "c", "AuthorizationType": "BASIC", "AuthParameters": basic}
    return str(create_connection(call, params)["ConnectionArn"])


def create(call: RequestContext, arn: str, name: str = "d", **more: Any) -> None:
    members = {"ConnectionArn": arn, "InvocationEndpoint": "https://h/*", "HttpMethod": "PUT"}
    create_api_destination(call, {"Name": name, **members, **more})


def test_it_is_described_as_it_was_made(call: RequestContext, arn: str) -> None:
    create(call, arn, InvocationRateLimitPerSecond=5)
    update_api_destination(call, {"Name": "d", "HttpMethod": "POST"})
    described = describe_api_destination(call, {"Name": "d"})
    assert (described["HttpMethod"], described["ConnectionArn"]) == ("POST", arn)
    assert described["InvocationRateLimitPerSecond"] == 5
    delete_api_destination(call, {"Name": "d"})
    with pytest.raises(AwsError, match="An api-destination 'd' does not exist"):
        describe_api_destination(call, {"Name": "d"})


@pytest.mark.parametrize("url", ["host", "ftp://host/", "http://", "http://[x/"])
def test_what_is_no_url_is_refused(call: RequestContext, arn: str, url: str) -> None:
    with pytest.raises(AwsError, match="is not a URL"):
        create(call, arn, InvocationEndpoint=url)


def test_a_connection_has_to_exist(call: RequestContext, arn: str) -> None:
    with pytest.raises(AwsError, match="does not exist"):
        create(call, f"{arn}0")


def test_they_are_listed_by_connection(call: RequestContext, arn: str) -> None:
    create(call, arn, "a")
    create(call, arn, "b")
    page = list_api_destinations(call, {"Limit": 1, "ConnectionArn": arn})
    assert [one["Name"] for one in page["ApiDestinations"]] == ["a"]
    rest = list_api_destinations(call, {"NextToken": page["NextToken"]})
    assert [one["Name"] for one in rest["ApiDestinations"]] == ["b"]
    assert list_api_destinations(call, {"ConnectionArn": "other"})["ApiDestinations"] == []
