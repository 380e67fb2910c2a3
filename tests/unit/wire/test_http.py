"""Bodies that come compressed."""

import gzip
import zlib

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, decompressed

BODY = b"Action=PutMetricData" * 100


def request(body, coding="gzip"):
    headers = {"content-type": "text/plain"}
    if coding is not None:
        headers["content-encoding"] = coding
    return Request("POST", "/", "", headers, body)


def test_a_compressed_body():
    read = decompressed(request(gzip.compress(BODY, mtime=0), " GZIP "), 4096)
    assert read.body == BODY
    assert read.headers == {"content-type": "text/plain"}


@pytest.mark.parametrize("coding", [None, "aws-chunked", "identity", ""])
def test_any_other_body_is_left_as_it_is(coding):
    given = request(gzip.compress(BODY, mtime=0), coding)
    assert decompressed(given, 4096) is given


@pytest.mark.parametrize(
    "body",
    [
        b"",
        BODY,
        gzip.compress(BODY, mtime=0)[:-1],
        gzip.compress(BODY, mtime=0) + b"x",
        gzip.compress(BODY, mtime=0)[:-8] + bytes(8),
        zlib.compress(BODY),
    ],
)
def test_what_is_not_gzip(body):
    with pytest.raises(AwsError) as caught:
        decompressed(request(body), 4096)
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)


def test_a_body_that_becomes_too_large():
    assert decompressed(request(gzip.compress(bytes(4096))), 4096).body == bytes(4096)
    with pytest.raises(AwsError) as caught:
        decompressed(request(gzip.compress(bytes(50_000_000))), 4096)
    assert caught.value.status == 413
