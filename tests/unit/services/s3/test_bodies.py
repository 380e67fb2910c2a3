"""Bodies: every encoding that SDKs send, every digest, and each way they can be wrong."""

import base64
import hashlib
import hmac
import http.client
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from awscrt import checksums
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
DATA = b"some bytes of an object\r\n" * 20_000
Put = Callable[..., tuple[int, str]]
SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def crc32(data: bytes) -> str:
    return b64(zlib.crc32(data).to_bytes(4, "big"))


def sign(url: str, headers: dict[str, str], payload: str) -> dict[str, str]:
    """The headers with a signature that holds `payload` for the body."""
    named = {"x-amz-content-sha256": payload, **headers}
    request = AWSRequest("PUT", url, headers=named)
    SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


@pytest.fixture
def put(server: Any, bucket: str) -> Put:
    """`put(body, payload, headers)` puts the key `k`; gives status and error code."""

    def send(
        body: bytes | Callable[[dict[str, str]], bytes | Iterator[bytes]],
        payload: str,
        **headers: str,
    ) -> tuple[int, str]:
        dashed = {name.replace("_", "-"): value for name, value in headers.items()}
        signed = sign(f"{server.url}/{bucket}/k", dashed, payload)
        sent = body(signed) if callable(body) else body
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        # Of a body that is refused early, not all is taken; the answer is there all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("PUT", f"/{bucket}/k", sent, signed)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text.partition("<Code>")[2].partition("</Code>")[0]

    return send


@pytest.fixture
def stored(s3: Any, bucket: str) -> Callable[[], bytes]:
    def read() -> bytes:
        return bytes(s3.get_object(Bucket=bucket, Key="k")["Body"].read())

    return read


def chunked(data: bytes, *trailers: str, size: int = 65_536) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return body + b"0\r\n" + "".join(f"{trailer}\r\n" for trailer in trailers).encode() + b"\r\n"


def chunk_signer(data: bytes, trailer: str = "", size: int = 65_536) -> Any:
    """Makes the body from the signed headers, each chunk signed as AWS's documents say."""

    def body(headers: dict[str, str]) -> bytes:
        authorization = headers["Authorization"]
        previous = authorization.partition("Signature=")[2]
        scope = authorization.partition("Credential=")[2].partition(",")[0].partition("/")[2]
        when = headers["X-Amz-Date"]
        key = ("AWS4" + SECRET_KEY).encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")

        def signature(kind: str, rest: str) -> str:
            text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", when, scope, previous, rest])
            return hmac.digest(key, text.encode(), "sha256").hex()

        out = b""
        for at in range(0, len(data) + size, size):
            piece = data[at : at + size]
            empty = hashlib.sha256(b"").hexdigest()
            rest = f"{empty}\n{hashlib.sha256(piece).hexdigest()}"
            previous = signature("PAYLOAD", rest)
            out += f"{len(piece):x};chunk-signature={previous}\r\n".encode()
            out += piece + b"\r\n" if piece else b""
        if trailer:
            digest = hashlib.sha256(f"{trailer}\n".encode()).hexdigest()
            out += f"{trailer}\r\nx-amz-trailer-signature:".encode()
            out += signature("TRAILER", digest).encode() + b"\r\n"
        return out + b"\r\n"

    return body


def test_a_signed_digest_is_compared(put: Put, stored: Callable[[], bytes]) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    assert put(DATA, digest) == (200, "")
    assert stored() == DATA
    assert put(DATA + b"!", digest) == (400, "XAmzContentSHA256Mismatch")
    assert put(b"small!", digest) == (400, "XAmzContentSHA256Mismatch")
    assert stored() == DATA


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("content_md5", b64(hashlib.md5(DATA).digest())),
        ("x_amz_checksum_crc32", crc32(DATA)),
        ("x_amz_checksum_crc32c", b64(checksums.crc32c(DATA).to_bytes(4, "big"))),
        ("x_amz_checksum_crc64nvme", b64(checksums.crc64nvme(DATA).to_bytes(8, "big"))),
        ("x_amz_checksum_sha1", b64(hashlib.sha1(DATA).digest())),
        ("x_amz_checksum_sha256", b64(hashlib.sha256(DATA).digest())),
        ("x_amz_checksum_sha512", b64(hashlib.sha512(DATA).digest())),
        ("x_amz_checksum_md5", b64(hashlib.md5(DATA).digest())),
    ],
)
def test_every_digest_is_compared(
    put: Put, stored: Callable[[], bytes], header: str, value: str
) -> None:
    assert put(DATA, "UNSIGNED-PAYLOAD", **{header: value}) == (200, "")
    assert stored() == DATA
    assert put(DATA[1:], "UNSIGNED-PAYLOAD", **{header: value}) == (400, "BadDigest")
    malformed = "InvalidDigest" if header == "content_md5" else "InvalidRequest"
    assert put(DATA, "UNSIGNED-PAYLOAD", **{header: "no digest"}) == (400, malformed)


def test_one_checksum_is_enough_and_must_be_there(put: Put) -> None:
    two = {"x_amz_checksum_crc32": crc32(DATA), "x_amz_checksum_sha1": b64(bytes(20))}
    assert put(DATA, "UNSIGNED-PAYLOAD", **two) == (400, "InvalidRequest")
    none = {"x_amz_sdk_checksum_algorithm": "CRC32"}
    assert put(DATA, "UNSIGNED-PAYLOAD", **none) == (400, "InvalidRequest")
    odd = {"x_amz_checksum_xxhash64": b64(bytes(8))}
    assert put(DATA, "UNSIGNED-PAYLOAD", **odd) == (501, "NotImplemented")


@pytest.mark.parametrize("size", [1, 9, 65_536, 10**6])
def test_chunks_with_a_trailer(
    put: Put, stored: Callable[[], bytes], size: int, s3: Any, bucket: str
) -> None:
    data = DATA if size > 9 else DATA[:1000]
    headers = {
        "x_amz_decoded_content_length": str(len(data)),
        "x_amz_trailer": "x-amz-checksum-crc32",
        "content_encoding": "aws-chunked",
    }
    body = chunked(data, f"x-amz-checksum-crc32:{crc32(data)}", size=size)
    assert put(body, UNSIGNED_TRAILER, **headers) == (200, "")
    assert stored() == data
    assert "ContentEncoding" not in s3.head_object(Bucket=bucket, Key="k")
    wrong = chunked(data, f"x-amz-checksum-crc32:{crc32(b'')}", size=size)
    assert put(wrong, UNSIGNED_TRAILER, **headers) == (400, "BadDigest")
    missing = chunked(data, size=size)
    assert put(missing, UNSIGNED_TRAILER, **headers) == (400, "MalformedTrailerError")


def in_pieces(body: bytes, size: int = 100_000) -> Iterator[bytes]:
    """A body of unsaid length, which http.client sends by `Transfer-Encoding: chunked`."""
    return (body[at : at + size] for at in range(0, len(body), size))


@pytest.mark.parametrize("kind", ["unsigned trailer", "signed", "signed trailer"])
def test_chunks_need_no_length_of_their_own(
    put: Put, stored: Callable[[], bytes], kind: str
) -> None:
    trailer = f"x-amz-checksum-crc32:{crc32(DATA)}"
    headers = {"x_amz_decoded_content_length": str(len(DATA)), "content_encoding": "aws-chunked"}
    if "trailer" in kind:
        headers["x_amz_trailer"] = "x-amz-checksum-crc32"
    mode = {"signed": SIGNED, "signed trailer": f"{SIGNED}-TRAILER"}.get(kind, UNSIGNED_TRAILER)

    def send(data: bytes) -> tuple[int, str]:
        def body(signed: dict[str, str]) -> Iterator[bytes]:
            if mode == UNSIGNED_TRAILER:
                return in_pieces(chunked(data, trailer))
            return in_pieces(chunk_signer(data, trailer if "trailer" in kind else "")(signed))

        return put(body, mode, **headers)

    assert send(DATA) == (200, "")
    assert stored() == DATA
    assert send(DATA[:-1]) == (400, "IncompleteBody")
    assert send(DATA + b"!") == (400, "IncompleteBody")
    headers.pop("x_amz_decoded_content_length")
    assert send(b"few") == (411, "MissingContentLength")


def test_other_bodies_need_a_length(put: Put) -> None:
    no_length = (411, "MissingContentLength")
    assert put(lambda _: in_pieces(b"few"), "UNSIGNED-PAYLOAD") == no_length
    more = {"x_amz_decoded_content_length": "3"}
    assert put(lambda _: in_pieces(b"few"), "UNSIGNED-PAYLOAD", **more) == no_length


def test_chunks_that_are_not_what_they_say(put: Put) -> None:
    headers = {"x_amz_decoded_content_length": str(len(DATA))}
    whole = chunked(DATA)
    assert put(whole[:-7], UNSIGNED_TRAILER, **headers) == (400, "IncompleteBody")
    assert put(chunked(DATA[1:]), UNSIGNED_TRAILER, **headers) == (400, "IncompleteBody")
    assert put(chunked(DATA + b"!"), UNSIGNED_TRAILER, **headers) == (400, "IncompleteBody")
    assert put(b"zz\r\n", UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")
    assert put(b"-5\r\n", UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")
    assert put(b"1" * 5000, UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")
    assert put(whole, UNSIGNED_TRAILER) == (411, "MissingContentLength")
    headers = {"x_amz_decoded_content_length": "1" * 5000}
    assert put(whole, UNSIGNED_TRAILER, **headers) == (411, "MissingContentLength")


@pytest.mark.parametrize(
    "size", [b"+5", b"-5", b"0x5", b"0_5", b" 5", b"5 ", b"", b"0" * 16 + b"5"]
)
def test_a_chunk_s_size_is_hexadecimal_digits(put: Put, size: bytes) -> None:
    headers = {"x_amz_decoded_content_length": "5"}
    assert put(b"5\r\nhello\r\n0\r\n\r\n", UNSIGNED_TRAILER, **headers) == (200, "")
    wrong = size + b"\r\nhello\r\n0\r\n\r\n"
    assert put(wrong, UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")


@pytest.mark.parametrize("rest", [b"x", b"\r\n", b"5\r\nworld\r\n0\r\n\r\n"])
@pytest.mark.parametrize("length", [5, len(DATA)])
def test_nothing_follows_the_last_chunk(put: Put, rest: bytes, length: int) -> None:
    headers = {"x_amz_decoded_content_length": str(length)}
    wrong = chunked(DATA[:length]) + rest
    assert put(wrong, UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")


def test_a_trailer_comes_once(put: Put) -> None:
    headers = {
        "x_amz_decoded_content_length": str(len(DATA)),
        "x_amz_trailer": "x-amz-checksum-crc32",
    }
    trailers = [f"x-amz-checksum-crc32:{crc32(data)}" for data in (b"", DATA)]
    assert put(chunked(DATA, *trailers), UNSIGNED_TRAILER, **headers) == (400, "InvalidRequest")


def test_every_chunk_may_be_signed(put: Put, stored: Callable[[], bytes]) -> None:
    headers = {"x_amz_decoded_content_length": str(len(DATA)), "content_encoding": "aws-chunked"}
    assert put(chunk_signer(DATA), SIGNED, **headers) == (200, "")
    assert stored() == DATA

    def tampered(signed: dict[str, str]) -> bytes:
        return bytes(chunk_signer(DATA)(signed)).replace(b"some bytes", b"more bytes")

    def with_more(signed: dict[str, str]) -> bytes:
        return bytes(chunk_signer(DATA)(signed)).replace(b";chunk", b";x=y;chunk")

    assert put(tampered, SIGNED, **headers) == (403, "SignatureDoesNotMatch")
    assert put(with_more, SIGNED, **headers) == (403, "SignatureDoesNotMatch")
    assert put(chunked(DATA), SIGNED, **headers) == (403, "SignatureDoesNotMatch")


def test_a_trailer_may_be_signed(put: Put, stored: Callable[[], bytes]) -> None:
    headers = {
        "x_amz_decoded_content_length": str(len(DATA)),
        "x_amz_trailer": "x-amz-checksum-crc32",
    }
    trailer = f"x-amz-checksum-crc32:{crc32(DATA)}"
    assert put(chunk_signer(DATA, trailer), f"{SIGNED}-TRAILER", **headers) == (200, "")
    assert stored() == DATA

    def tampered(signed: dict[str, str]) -> bytes:
        body: bytes = chunk_signer(DATA, trailer)(signed)
        return body.replace(b"x-amz-trailer-signature:", b"x-amz-trailer-signature:0")

    assert put(tampered, f"{SIGNED}-TRAILER", **headers) == (403, "SignatureDoesNotMatch")


def test_five_gigabytes_at_most(put: Put) -> None:
    headers = {"x_amz_decoded_content_length": str(5 * 2**30 + 1)}
    assert put(chunked(b""), UNSIGNED_TRAILER, **headers) == (400, "EntityTooLarge")


def test_a_body_that_breaks_off_leaves_nothing(
    server: Any, bucket: str, s3: Any, wait_until: Callable[..., None]
) -> None:
    before = server.files()
    url = f"{server.url}/{bucket}/k"
    headers = sign(url, {"content-length": "3000000"}, "UNSIGNED-PAYLOAD")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"PUT /{bucket}/k HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n{lines}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + bytes(2_000_000))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    # Its file is removed in a thread, when its end has been seen.
    wait_until(lambda: server.files() == before)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_the_client_is_asked_for_its_body_only_when_it_is_wanted(server: Any, bucket: str) -> None:
    def ask(name: str) -> bytes:
        url = f"{server.url}/{name}/k"
        more = {"content-length": "3000000", "expect": "100-continue"}
        headers = sign(url, more, "UNSIGNED-PAYLOAD")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"PUT /{name}/k HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n{lines}\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode())
            return connection.recv(65_536)

    assert ask(bucket).startswith(b"HTTP/1.1 100 Continue\r\n")
    refused = ask("no-such-bucket")
    assert refused.startswith(b"HTTP/1.1 404")
    assert b"connection: close" in refused.lower()
