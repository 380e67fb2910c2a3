"""A server that may open few files serves as many clients as it can, and tells its health."""

import shutil
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from support.plain_http import ask
from support.server import Server, eventually


@pytest.fixture(scope="module")
def cramped():
    """A server started after `ulimit -n 64`."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    server = Server(folder / "home", {}, open_files=64)
    server.start()
    yield server
    assert server.stop() == 0
    shutil.rmtree(folder)


def test_kept_connections_of_one_client_shut_no_other_out(cramped):
    crowd = cramped.client("s3", max_pool_connections=40, retries={"max_attempts": 10})
    crowd.create_bucket(Bucket="crowd")

    def put(number):
        try:
            put = crowd.put_object(Bucket="crowd", Key=str(number), Body=bytes(1000))
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]
        except ConnectionClosedError:
            return None
        return put["ResponseMetadata"]["HTTPStatusCode"]

    with ThreadPoolExecutor(30) as threads:
        statuses = Counter(threads.map(put, range(300)))
    assert statuses[200] > 10, statuses
    assert set(statuses) <= {200, 503, None}

    def another_client_is_served():
        """The crowd still keeps its connections: one of them is closed for the newcomer, as soon as
        it has been idle for a second."""
        other = cramped.client("s3")
        try:
            return bool(other.list_buckets()["Buckets"])
        except ClientError as error:
            refusals.add(error.response["ResponseMetadata"]["HTTPStatusCode"])
            return False
        except ConnectionClosedError:
            return False
        finally:
            other.close()

    refusals = set()
    for _ in range(10):
        eventually(another_client_is_served)
    assert refusals <= {503}


def test_health_is_told_while_all_connections_are_at_work(cramped):
    host = cramped.url.removeprefix("http://")
    with ExitStack() as stack:
        for _ in range(40):
            begun = HTTPConnection(host, timeout=120)
            stack.callback(begun.close)
            begun.putrequest("PUT", "/crowd/large")
            begun.putheader("Content-Length", "1000")
            begun.endheaders(b"half of it")
        for _ in range(20):
            assert ask(f"{cramped.url}/_sagehen/health").status == 200
