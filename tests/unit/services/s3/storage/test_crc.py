"""The CRCs are the published ones, whole or in pieces."""

import random
import zlib

import pytest

from sagehen.services.s3.storage.crc import CRC32, CRC32C, CRC64NVME, Crc

CRCS = {"crc32": CRC32, "crc32c": CRC32C, "crc64nvme": CRC64NVME}


@pytest.mark.parametrize(
    ("crc", "check"),
    [(CRC32, 0xCBF43926), (CRC32C, 0xE3069283), (CRC64NVME, 0xAE8B14860A799888)],
)
def test_has_the_check_value_of_its_catalogue_entry(crc: Crc, check: int) -> None:
    assert crc.update(0, b"123456789") == check


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 262_143, 262_144, 262_145, 700_001])
def test_lanes_give_what_the_standard_library_gives(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert Crc(32, 0xEDB88320).update(7, data) == zlib.crc32(data, 7)


@pytest.mark.parametrize("name", CRCS)
def test_pieces_in_a_row_give_the_crc_of_the_whole(name: str) -> None:
    crc = CRCS[name]
    data = random.Random(name).randbytes(300_000)
    for cut in (0, 1, 5_000, 299_999):
        first, second = data[:cut], data[cut:]
        whole = crc.update(0, data)
        assert crc.update(crc.update(0, first), second) == whole
        assert crc.join(crc.update(0, first), crc.update(0, second), len(second)) == whole
