"""Chunk signatures, with the examples of Amazon's own documentation."""

import hashlib

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.signatures.chunks import ChunkSignatures
from sagehen.wire.signatures.sigv4 import Verifier

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NOW = 1_369_353_600.0  # 2013-05-24 00:00:00 UTC
CHUNKS = [b"a" * 65536, b"a" * 1024, b""]


def identity(clock, signed_headers: str, signature: str, **headers: str):
    scope = f"{KEY}/20130524/us-east-1/s3/aws4_request"
    given = {
        "host": "s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": "66560",
        "authorization": f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders={signed_headers},"
        f"Signature={signature}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    request = Request("PUT", "/examplebucket/chunkObject.txt", "", given)
    return Verifier({KEY: SECRET}, clock, "us-east-1").verify(request, None, NOW)


@pytest.fixture
def chunked(clock):
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html"""
    return identity(
        clock,
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
        "x-amz-decoded-content-length;x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        content_length="66824",
        x_amz_content_sha256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    )


@pytest.fixture
def with_trailer(clock):
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html"""
    return identity(
        clock,
        "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;"
        "x-amz-storage-class;x-amz-trailer",
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        x_amz_content_sha256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        x_amz_trailer="x-amz-checksum-crc32c",
    )


def check_all(signatures: ChunkSignatures, given: list[str]) -> None:
    for chunk, signature in zip(CHUNKS, given, strict=True):
        signatures.check(signature, hashlib.sha256(chunk).hexdigest())


CHUNKED = [
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
]
TRAILED = [
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
]
TRAILER = b"x-amz-checksum-crc32c:sOO8/Q==\n"
TRAILER_SIGNATURE = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"


def test_the_documented_chunks_are_right(chunked):
    assert chunked.payload_mode == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    check_all(ChunkSignatures(chunked), CHUNKED)


def test_the_documented_trailer_is_right(with_trailer):
    assert with_trailer.payload_mode == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
    signatures = ChunkSignatures(with_trailer)
    check_all(signatures, TRAILED)
    signatures.check_trailer(TRAILER_SIGNATURE, TRAILER)


def test_chunks_in_another_order_are_noticed(chunked):
    with pytest.raises(AwsError) as caught:
        ChunkSignatures(chunked).check(CHUNKED[1], hashlib.sha256(CHUNKS[1]).hexdigest())
    assert (caught.value.code, caught.value.status) == ("SignatureDoesNotMatch", 403)


def test_another_trailer_is_noticed(with_trailer):
    signatures = ChunkSignatures(with_trailer)
    check_all(signatures, TRAILED)
    with pytest.raises(AwsError):
        signatures.check_trailer(TRAILER_SIGNATURE, b"x-amz-checksum-crc32c:AAAAAA==\n")
