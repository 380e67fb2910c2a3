"""Requests that nobody may make, against a real server: whatever their form, nothing changes."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sagehen.services.messaging.sns.confirmation import LINKED
from support.forging import (
    Base,
    Forged,
    ambiguous,
    ask,
    bases,
    linked,
    signed,
    unsigned,
    wrongly_signed,
)
from support.server import Server

OPERATIONS = [
    ("cloudwatch", "json", "PutMetricData"),
    ("cloudwatch", "smithy-rpc-v2-cbor", "PutMetricData"),
    ("cloudwatch", "query", "PutMetricData"),
    ("events", None, "PutRule"),
    ("iam", None, "GetRole"),
    ("logs", None, "DescribeLogGroups"),
    ("s3", None, "CreateBucket"),
    ("s3", None, "PutObject"),
    ("s3", None, "ListBuckets"),
    ("sagemaker", None, "DeleteModel"),
    ("sagemaker", None, "CreateModel"),
    ("sagemaker-runtime", None, "InvokeEndpoint"),
    ("sagemaker-runtime", None, "InvokeEndpointAsync"),
    ("sagemaker-runtime", None, "InvokeEndpointWithResponseStream"),
    ("sns", None, "CreateTopic"),
    ("sns", None, "ListTopics"),
    ("sns", None, "Subscribe"),
    ("sqs", "json", "CreateQueue"),
    ("sqs", "query", "CreateQueue"),
    ("sts", None, "GetCallerIdentity"),
]


@pytest.fixture(scope="module")
def seen(server: Server) -> Any:
    """What of the server forged requests would change."""
    clients = {name: server.client(name) for name in ("events", "s3", "sagemaker", "sns", "sqs")}

    def look() -> list[Any]:
        return [
            [one["Name"] for one in clients["events"].list_rules()["Rules"]],
            [one["Name"] for one in clients["s3"].list_buckets()["Buckets"] if one["Name"] == "a"],
            clients["sagemaker"].list_models(NameContains="a-forged")["Models"],
            [one for one in clients["sns"].list_topics()["Topics"] if one["TopicArn"][-2:] == ":a"],
            clients["sqs"].list_queues(QueueNamePrefix="a").get("QueueUrls", []),
        ]

    return look


def forged(base: Base, host: str) -> Iterator[Forged]:
    now = time.time()
    right = signed(base.sent, base.signing_name, now=now, host=host)
    link = signed(base.sent, base.signing_name, "link", now=now, host=host)
    assert (base.service, base.operation) not in LINKED
    forms = itertools.chain([Forged("plain", base.sent)], linked(base), ambiguous(base))
    yield from (Forged(one.how, unsigned(one.sent)) for one in forms)
    yield from wrongly_signed(right, link, right)


@pytest.mark.parametrize(("name", "spoken", "operation"), OPERATIONS)
def test_nothing_comes_of_it(
    server: Server, seen: Any, name: str, spoken: str | None, operation: str
) -> None:
    host = server.url.removeprefix("http://")
    before = seen()
    (base,) = [one for one in bases(name, spoken) if one.operation == operation]
    for one in forged(base, host):
        status, body = ask(host, one.sent)
        assert status in (400, 403, 404, 405), (one, status, body)
    assert seen() == before


def test_a_rightly_signed_one_of_them_is_done(server: Server) -> None:
    """The server that refused the others does this."""
    host = server.url.removeprefix("http://")
    keys = {
        "key": server.env["AWS_ACCESS_KEY_ID"],
        "secret": server.env["AWS_SECRET_ACCESS_KEY"],
    }
    for name, spoken, operation in OPERATIONS:
        if operation in ("ListTopics", "GetCallerIdentity", "ListBuckets", "DescribeLogGroups"):
            (base,) = [one for one in bases(name, spoken) if one.operation == operation]
            right = signed(base.sent, base.signing_name, now=time.time(), host=host, **keys)
            assert ask(host, right)[0] == 200
