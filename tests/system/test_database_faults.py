"""PostgreSQL behind a proxy that loses answers, or forwards nothing and stays connected."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from support.postgres import running_postgres
from support.postgres_proxy import PostgresProxy
from support.server import eventually

CLIENTS = 20
BOUND_SECONDS = 40
"""generous: it takes some 22 seconds"""
OVERWRITES = 10
OLD, NEW = b"o" * 20_000, b"n" * 20_000


@pytest.fixture(scope="module")
def proxy():
    with running_postgres() as url, PostgresProxy(url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def server(proxy, make_server):
    server = make_server(database_url=proxy.url)
    server.client("s3").create_bucket(Bucket="models")
    yield server
    server.stop()


def is_done(call, **params):
    try:
        call(Bucket="models", **params)
    except ClientError:
        return False
    return True


def test_lost_answers_to_commits_lose_no_object(server, proxy):
    s3 = server.client("s3")
    for number in range(OVERWRITES):
        key = str(number)
        eventually(lambda key=key: is_done(s3.put_object, Key=key, Body=OLD))
        proxy.cuts_commits = True
        assert not is_done(s3.put_object, Key=key, Body=NEW)
        proxy.cuts_commits = False
    for number in range(OVERWRITES):
        with contextlib.closing(s3.get_object(Bucket="models", Key=str(number))["Body"]) as body:
            # A cut may also come before the object's own commit.
            assert body.read() in (OLD, NEW)


def test_writes_are_refused_within_a_bounded_time(server, proxy):
    s3 = server.client("s3", read_timeout=300, max_pool_connections=CLIENTS)
    proxy.is_silent = True

    def put(number):
        began = time.monotonic()
        with pytest.raises(ClientError) as caught:
            s3.put_object(Bucket="models", Key=str(number), Body=NEW)
        status = caught.value.response["ResponseMetadata"]["HTTPStatusCode"]
        return status, time.monotonic() - began

    with ThreadPoolExecutor(CLIENTS) as threads:
        answers = list(threads.map(put, range(CLIENTS)))
    assert {status for status, _ in answers} == {503}
    assert max(seconds for _, seconds in answers) < BOUND_SECONDS
    proxy.is_silent = False
    eventually(lambda: is_done(s3.put_object, Key="after", Body=NEW))
