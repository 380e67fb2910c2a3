"""Connections: whole credentials of one kind, and never told again."""

from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.connections import (
    create_connection,
    delete_connection,
    describe_connection,
    list_connections,
    update_connection,
)
from sagehen.wire.errors import AwsError

KEY = {"ApiKeyAuthParameters": {"ApiKeyName": "X-Key", "ApiKeyValue": "hush"}}
BASIC = {"BasicAuthParameters": {"Username": "u", "Password": "hush"}}


def create(call: RequestContext, kind: str, parameters: dict[str, Any], name: str = "c") -> None:
    create_connection(call, {"Name": name, "AuthorizationType": kind, "AuthParameters": parameters})


def test_secrets_are_not_described(call: RequestContext) -> None:
    header = {"Key": "k", "Value": "hush", "IsValueSecret": True}
    open_header = {"Key": "o", "Value": "open"}
    http = {"InvocationHttpParameters": {"HeaderParameters": [header, open_header]}}
    create(call, "API_KEY", {**KEY, **http})
    described = describe_connection(call, {"Name": "c"})
    assert "hush" not in str(described)
    assert described["AuthParameters"]["ApiKeyAuthParameters"] == {"ApiKeyName": "X-Key"}
    headers = described["AuthParameters"]["InvocationHttpParameters"]["HeaderParameters"]
    assert headers == [{"Key": "k", "IsValueSecret": True}, open_header]
    create(call, "BASIC", BASIC, name="b")
    assert "hush" not in str(describe_connection(call, {"Name": "b"}))


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("OAUTH_CLIENT_CREDENTIALS", KEY, "AuthorizationType OAUTH"),
        ("BASIC", KEY, "must have BasicAuthParameters"),
        ("API_KEY", {**KEY, **BASIC}, "no other credentials"),
        ("BASIC", {"BasicAuthParameters": {"Username": "u"}}, "with both members"),
        (
            "API_KEY",
            {"ApiKeyAuthParameters": {"ApiKeyName": "a b", "ApiKeyValue": "v"}},
            "a b is not a valid",
        ),
        ("API_KEY", {**KEY, "ConnectivityParameters": {}}, "ConnectivityParameters"),
        (
            "API_KEY",
            {**KEY, "InvocationHttpParameters": {"BodyParameters": [{}]}},
            "BodyParameters",
        ),
    ],
)
def test_connections_that_are_refused(
    call: RequestContext, kind: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(AwsError, match=message):
        create(call, kind, parameters)
    assert list_connections(call, {})["Connections"] == []


def test_a_name_is_taken_until_it_is_deleted(call: RequestContext) -> None:
    create(call, "BASIC", BASIC)
    arn = describe_connection(call, {"Name": "c"})["ConnectionArn"]
    with pytest.raises(AwsError, match="already exists"):
        create(call, "BASIC", BASIC)
    update_connection(call, {"Name": "c", "Description": "d"})
    described = describe_connection(call, {"Name": "c"})
    assert (described["Description"], described["ConnectionArn"]) == ("d", arn)
    assert delete_connection(call, {"Name": "c"})["ConnectionState"] == "DELETING"
    create(call, "BASIC", BASIC)
    assert describe_connection(call, {"Name": "c"})["ConnectionArn"] != arn


def test_connections_are_listed_by_pages_and_state(call: RequestContext) -> None:
    for name in "abc":
        create(call, "BASIC", BASIC, name)
    page = list_connections(call, {"Limit": 2})
    assert [one["Name"] for one in page["Connections"]] == ["a", "b"]
    rest = list_connections(call, {"NextToken": page["NextToken"]})
    assert [one["Name"] for one in rest["Connections"]] == ["c"]
    assert list_connections(call, {"ConnectionState": "DELETING"})["Connections"] == []
