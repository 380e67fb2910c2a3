"""The asyncio client of S3, with the real S3 server as its judge."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.frame import s3_client
from sagehen.frame.s3_client import MIN_PART_BYTES, S3Client, S3Error
from sagehen.wire.signatures.signing import Signer
from support.fixtures.api_s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server

KEYS = [
    "plain.csv",
    "a b+c%20&d=e;f,g@h!i'j(k)*~",
    "/slashes//inside/",
    "über/日本語/\U0001f600",
    "dots/./../x",
    "control\x01\tline\n\x7f",
    "<&>\"'`|\\^{}[]#?",
]


@pytest.fixture
async def client(server: S3Server) -> AsyncIterator[S3Client]:
    signer = Signer(ACCESS_KEY, SECRET_KEY, REGION)
    client = S3Client(f"tcp:127.0.0.1:{server.port}", signer, SYSTEM)
    yield client
    client.abort()
    await asyncio.sleep(0)  # the connections close in the next turn


@pytest.mark.parametrize("key", KEYS)
async def test_any_key_is_written_listed_and_read(
    client: S3Client, s3: Any, bucket: str, key: str
) -> None:
    await client.put(bucket, key, [b"01234", b"56789"])

    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"0123456789"
    page = await client.list_page(bucket, key[:3])
    assert [(entry.key, entry.size) for entry in page.objects] == [(key, 10)]
    piece = await client.read(bucket, key, 2, 3, page.objects[0].etag)
    assert piece == (b"234", 10, page.objects[0].etag)


async def test_pages_go_on_behind_a_key(client: S3Client, bucket: str) -> None:
    for number in range(3):
        await client.put(bucket, f"in/{number}", [b"x"])

    page = await client.list_page(bucket, "in/", "in/0")

    assert [entry.key for entry in page.objects] == ["in/1", "in/2"]
    assert page.is_last


async def test_an_empty_object_has_no_bytes_in_any_range(client: S3Client, bucket: str) -> None:
    await client.put(bucket, "empty", [])
    assert (await client.read(bucket, "empty", 0, 100)).data == b""


async def test_a_replaced_object_is_not_read_on(client: S3Client, bucket: str) -> None:
    await client.put(bucket, "key", [b"old"])
    etag = (await client.read(bucket, "key", 0, 1)).etag
    await client.put(bucket, "key", [b"new"])
    with pytest.raises(S3Error) as caught:
        await client.read(bucket, "key", 1, 2, etag)
    assert caught.value.code == "PreconditionFailed"


async def test_parts_become_one_object_at_the_end(client: S3Client, s3: Any, bucket: str) -> None:
    upload_id = await client.create_upload(bucket, "large", "text/csv")
    first, last = b"a" * MIN_PART_BYTES, b"b"
    etags = [
        await client.upload_part(bucket, "large", upload_id, number, [part])
        for number, part in enumerate((first, last), 1)
    ]
    assert (await client.list_page(bucket, "")).objects == []

    await client.complete_upload(bucket, "large", upload_id, etags)

    answer = s3.get_object(Bucket=bucket, Key="large")
    assert answer["Body"].read() == first + last
    assert answer["ContentType"] == "text/csv"


async def test_an_aborted_upload_is_gone_and_may_be_aborted_again(
    client: S3Client, s3: Any, bucket: str
) -> None:
    upload_id = await client.create_upload(bucket, "large")
    await client.abort_upload(bucket, "large", upload_id)
    await client.abort_upload(bucket, "large", upload_id)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


async def test_an_upload_is_found_by_its_owner(client: S3Client, s3: Any, bucket: str) -> None:
    owner = "0123456789abcdef" * 2
    upload_id = await client.create_upload(bucket, "large", owner=owner)
    (listed,) = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert listed["UploadId"] == upload_id
    assert upload_id.startswith("o" + owner)
    etag = await client.upload_part(bucket, "large", upload_id, 1, [b"part"])
    await client.complete_upload(bucket, "large", upload_id, [etag])
    assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == b"part"


@pytest.mark.parametrize("owner", ["", "%" * 32, "A" * 32, "0" * 31, "0" * 33])
async def test_an_owner_has_32_digits(client: S3Client, bucket: str, owner: str) -> None:
    with pytest.raises(S3Error, match="32 hexadecimal digits") as caught:
        await client.create_upload(bucket, "large", owner=owner)
    assert caught.value.code == "InvalidArgument"


async def test_a_refusal_has_its_code(client: S3Client, bucket: str) -> None:
    with pytest.raises(S3Error) as caught:
        await client.read(bucket, "absent", 0, 1)
    assert (caught.value.code, caught.value.status) == ("NoSuchKey", 404)


async def test_an_absent_server_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "RETRY_SECONDS", 0)
    client = S3Client("unix:/nowhere", Signer("key", "secret", REGION), SYSTEM)
    with pytest.raises(Unavailable):
        await client.list_page("bucket", "")
