"""CRC-32, CRC-32C and CRC-64/NVME, and joining the CRCs of two pieces into that of both.

The standard library has CRC-32 only. The others are computed with numpy, many lanes at a time: a
block is cut into lanes of equal length, all lanes advance together, and their results are joined.
"""

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CRC32", "CRC32C", "CRC64NVME", "Crc"]

_LANES = 2048
_LANE_BYTES = 128
_BLOCK_BYTES = _LANES * _LANE_BYTES
_LEAST_BYTES_FOR_LANES = 4096

Words = NDArray[Any]


class Crc:
    """One reflected CRC whose register starts and ends inverted, as all three of ours do."""

    def __init__(self, bits: int, polynomial: int) -> None:
        """`polynomial` in its reflected form."""
        self.size = bits // 8
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._polynomial = polynomial
        self._dtype = np.dtype(np.uint32 if bits == 32 else np.uint64)
        self._table = self._byte_table()
        self._steps = [int(entry) for entry in self._table]
        self._wide: Words | None = None
        self._joins: list[tuple[Words, ...]] = []

    def update(self, value: int, data: bytes | bytearray | memoryview) -> int:
        """The CRC of what `value` is the CRC of, followed by `data`; start with 0."""
        view = memoryview(data).cast("B")
        register = value ^ self._mask
        for start in range(0, len(view), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES]
            if len(block) < _LEAST_BYTES_FOR_LANES:
                register = self._advance(register, block)
            else:
                register = self._advance_block(register, block)
        return register ^ self._mask

    def join(self, first: int, second: int, second_size: int) -> int:
        """The CRC of two pieces in a row, from their CRCs and the second's size in bytes."""
        matrix = self._shift_one_byte()
        size = second_size
        while size:
            if size & 1:
                first = _apply(matrix, first)
            size >>= 1
            if size:
                matrix = _square(matrix)
        return first ^ second

    def _byte_table(self) -> Words:
        table = np.arange(256, dtype=self._dtype)
        one = self._dtype.type(1)
        polynomial = self._dtype.type(self._polynomial)
        for _ in range(8):
            table = np.where(table & one, (table >> one) ^ polynomial, table >> one)
        return table

    def _advance(self, register: int, view: memoryview) -> int:
        steps = self._steps
        for byte in view:
            register = steps[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register

    def _advance_block(self, register: int, block: memoryview) -> int:
        # Zeroes in front of a register of zero change nothing, so they may fill up the lanes. The
        # register so far is mixed into the first bytes, which comes to the same.
        lanes = 1 << (-(-len(block) // _LANE_BYTES) - 1).bit_length()
        padded = np.zeros(lanes * _LANE_BYTES, np.uint8)
        start = len(padded) - len(block)
        padded[start:] = np.frombuffer(block, np.uint8)
        padded[start : start + self.size] ^= np.frombuffer(
            register.to_bytes(self.size, "little"), np.uint8
        )
        columns = np.ascontiguousarray(padded.view("<u2").reshape(lanes, _LANE_BYTES // 2).T)
        wide = self._two_byte_table()
        state = np.zeros(lanes, dtype=self._dtype)
        sixteen = self._dtype.type(16)
        for column in columns:
            state = wide[state.astype(np.uint16) ^ column] ^ (state >> sixteen)
        return self._fold(state)

    def _fold(self, state: Words) -> int:
        """Join the lanes, halving them at each turn: left of each pair moves on by one length."""
        byte = self._dtype.type(0xFF)
        for shift in self._lane_shifts()[: len(state).bit_length() - 1]:
            left, right = state[0::2], state[1::2]
            moved = shift[0][left & byte]
            for place in range(1, self.size):
                moved ^= shift[place][(left >> self._dtype.type(8 * place)) & byte]
            state = moved ^ right
        return int(state[0])

    def _two_byte_table(self) -> Words:
        if self._wide is None:
            low = self._table[np.arange(65536) & 0xFF] ^ (np.arange(65536) >> 8).astype(self._dtype)
            self._wide = self._table[low & self._dtype.type(0xFF)] ^ (low >> self._dtype.type(8))
        return self._wide

    def _lane_shifts(self) -> list[tuple[Words, ...]]:
        """Per turn of folding, tables by register byte that move a register past that length."""
        if not self._joins:
            matrix = self._shift_one_byte()
            for _ in range(_LANE_BYTES.bit_length() - 1):
                matrix = _square(matrix)
            joins = []
            for _ in range(_LANES.bit_length() - 1):
                joins.append(self._tables_of(matrix))
                matrix = _square(matrix)
            self._joins = joins
        return self._joins

    def _tables_of(self, matrix: tuple[int, ...]) -> tuple[Words, ...]:
        return tuple(
            np.array([_apply(matrix, byte << (8 * place)) for byte in range(256)], self._dtype)
            for place in range(self.size)
        )

    def _shift_one_byte(self) -> tuple[int, ...]:
        """The matrix, as columns, that moves a register past one byte of zeroes."""
        return tuple(
            self._steps[(1 << bit) & 0xFF] ^ ((1 << bit) >> 8) for bit in range(self._bits)
        )


class _ZlibCrc(Crc):
    """CRC-32 by the standard library."""

    def update(self, value: int, data: bytes | bytearray | memoryview) -> int:
        return zlib.crc32(data, value)


def _apply(matrix: tuple[int, ...], vector: int) -> int:
    result = 0
    for column in matrix:
        if vector & 1:
            result ^= column
        vector >>= 1
        if not vector:
            break
    return result


@lru_cache(maxsize=256)
def _square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_apply(matrix, column) for column in matrix)


CRC32 = _ZlibCrc(32, 0xEDB88320)
CRC32C = Crc(32, 0x82F63B78)
CRC64NVME = Crc(64, 0x9A6C9329AC4BC9B5)
