"""CRC-32, CRC-32C and CRC-64/NVME, and joining the CRCs of consecutive pieces."""

import zlib
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.services.s3.storage.crc_lanes import Lanes

__all__ = ["CRC32", "CRC32C", "CRC64NVME", "Crc", "apply", "square"]

_BLOCK_BYTES = 2**18
_LEAST_BYTES_FOR_LANES = 4096


class Crc:
    """A reflected CRC with an inverted register."""

    def __init__(self, bits: int, polynomial: int) -> None:
        """`polynomial` is reflected."""
        self.size = bits // 8
        self.steps = [_step(byte, polynomial) for byte in range(256)]
        """what shifting out the lowest byte XORs into the register"""
        self._bits = bits
        self._mask = (1 << bits) - 1

    @cached_property
    def _lanes(self) -> "Lanes":
        # Imported late: numpy costs memory and start time.
        from sagehen.services.s3.storage.crc_lanes import Lanes

        return Lanes(self)

    def update(self, value: int, data: bytes | bytearray | memoryview) -> int:
        """Returns the CRC of earlier data, whose CRC is `value`, and `data`. Start with 0."""
        view = memoryview(data).cast("B")
        register = value ^ self._mask
        for start in range(0, len(view), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES]
            if len(block) < _LEAST_BYTES_FOR_LANES:
                register = self._advance(register, block)
            else:
                register = self._lanes.advance(register, block)
        return register ^ self._mask

    def join(self, first: int, second: int, second_size: int) -> int:
        """Returns the CRC of two consecutive pieces; `second_size` is in bytes."""
        matrix = self.shift_one_byte()
        size = second_size
        while size:
            if size & 1:
                first = apply(matrix, first)
            size >>= 1
            if size:
                matrix = square(matrix)
        return first ^ second

    def shift_one_byte(self) -> tuple[int, ...]:
        """Returns the matrix, as columns over GF(2), that moves a register past one zero byte."""
        return tuple(self.steps[(1 << bit) & 0xFF] ^ ((1 << bit) >> 8) for bit in range(self._bits))

    def _advance(self, register: int, view: memoryview) -> int:
        steps = self.steps
        for byte in view:
            register = steps[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register


class _ZlibCrc(Crc):
    def update(self, value: int, data: bytes | bytearray | memoryview) -> int:
        return zlib.crc32(data, value)


def _step(byte: int, polynomial: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ polynomial if byte & 1 else byte >> 1
    return byte


def apply(matrix: tuple[int, ...], vector: int) -> int:
    """Multiplies a matrix over GF(2), given by columns, with a vector."""
    result = 0
    for column in matrix:
        if vector & 1:
            result ^= column
        vector >>= 1
        if not vector:
            break
    return result


@lru_cache(maxsize=256)
def square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the matrix that moves a register twice as far."""
    return tuple(apply(matrix, column) for column in matrix)


CRC32 = _ZlibCrc(32, 0xEDB88320)
CRC32C = Crc(32, 0x82F63B78)
CRC64NVME = Crc(64, 0x9A6C9329AC4BC9B5)
