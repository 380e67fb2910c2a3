"""Checksums are the published ones, whole or in pieces."""

import base64
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from sagehen.services.s3.storage.digests import (
    ALGORITHMS,
    JOINABLE,
    base64_of,
    joined_checksum,
    new_digest,
)
from sagehen.services.s3.storage.records import Blob, ChecksumKind


def digest_of(algorithm: str, *pieces: bytes) -> bytes:
    digest = new_digest(algorithm)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def parts_of(algorithm: str, pieces: Sequence[bytes]) -> list[Blob]:
    return [
        Blob(
            blob_id=str(number),
            owner_id="upload",
            number=number,
            size=len(piece),
            etag="",
            modified_at=0,
            checksum=base64_of(digest_of(algorithm, piece)),
        )
        for number, piece in enumerate(pieces, 1)
    ]


@pytest.mark.parametrize(
    ("algorithm", "check"),
    [("crc32", "cbf43926"), ("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888")],
)
def test_crc_has_the_check_value_of_its_catalogue_entry(algorithm: str, check: str) -> None:
    assert digest_of(algorithm, b"123456789").hex() == check
    assert digest_of(algorithm) == bytes(len(check) // 2)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_its_size_and_takes_pieces(algorithm: str) -> None:
    data = random.Random(algorithm).randbytes(300_000)
    whole = digest_of(algorithm, data)
    assert len(whole) == ALGORITHMS[algorithm]
    for cut in (0, 1, 5_000, 299_999):
        assert digest_of(algorithm, data[:cut], data[cut:]) == whole


@pytest.mark.parametrize("algorithm", JOINABLE)
def test_checksums_of_parts_join_to_that_of_the_whole(algorithm: str) -> None:
    data = random.Random(algorithm).randbytes(300_000)
    whole = base64_of(digest_of(algorithm, data))
    for cuts in ((0,), (1,), (5_000, 5_000, 262_145), (299_999, 300_000)):
        bounds = [0, *cuts, len(data)]
        pieces = [data[start:end] for start, end in pairwise(bounds)]
        joined = joined_checksum(algorithm, ChecksumKind.FULL_OBJECT, parts_of(algorithm, pieces))
        assert (joined.algorithm, joined.value) == (algorithm, whole)


@pytest.mark.parametrize("algorithm", JOINABLE)
def test_sizes_of_more_than_32_bits_join(algorithm: str) -> None:
    """Parts have up to 5 GiB, too much to make here; a checksum alone is enough to join."""

    def joined(*sizes: int) -> str:
        first = parts_of(algorithm, [b"123456789"])
        zero = base64_of(bytes(ALGORITHMS[algorithm]))
        others = [msgspec.structs.replace(first[0], size=size, checksum=zero) for size in sizes]
        return joined_checksum(algorithm, ChecksumKind.FULL_OBJECT, first + others).value

    assert joined(2**32 + 5) == joined(2**31, 2**31 + 5)
    assert joined(2**32 + 5) != joined(5)


def test_parts_of_an_earlier_version_have_no_default_checksum() -> None:
    """They have the client's checksum, or none."""
    data = [b"first", b"second"]
    joined = joined_checksum(None, ChecksumKind.FULL_OBJECT, parts_of("crc64nvme", data))
    assert joined is not None
    assert joined.value == base64_of(digest_of("crc64nvme", b"".join(data)))
    older = parts_of("crc32", data)
    bare = [msgspec.structs.replace(part, checksum=None) for part in older]
    for parts in (older, bare, [*parts_of("crc64nvme", data[:1]), older[1]]):
        assert joined_checksum(None, ChecksumKind.FULL_OBJECT, parts) is None


def test_a_composite_checksum_is_that_of_the_parts_checksums() -> None:
    parts = parts_of("sha256", [b"a", b"b"])
    values = [base64.b64decode(part.checksum or "") for part in parts]
    joined = joined_checksum("sha256", ChecksumKind.COMPOSITE, parts)
    assert joined.value == f"{base64_of(digest_of('sha256', *values))}-2"
