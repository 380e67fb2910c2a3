"""Computes CRCs of large blocks with numpy, in lanes of equal length that advance together."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sagehen.services.s3.storage.crc import Crc, apply, square

__all__ = ["Lanes"]

_LANES = 2048
_LANE_BYTES = 128

Words = NDArray[Any]


class Lanes:
    """Advances a register over at most _LANES * _LANE_BYTES bytes."""

    def __init__(self, crc: Crc) -> None:
        self._crc = crc
        self._dtype = np.dtype(np.uint32 if crc.size == 4 else np.uint64)
        self._table = np.array(crc.steps, self._dtype)

    def advance(self, register: int, block: memoryview) -> int:
        # Leading zeroes leave a zero register unchanged, so they may fill up the lanes. The current
        # register is XORed into the first bytes instead.
        lanes = 1 << (-(-len(block) // _LANE_BYTES) - 1).bit_length()
        padded = np.zeros(lanes * _LANE_BYTES, np.uint8)
        start, size = len(padded) - len(block), self._crc.size
        padded[start:] = np.frombuffer(block, np.uint8)
        padded[start : start + size] ^= np.frombuffer(register.to_bytes(size, "little"), np.uint8)
        columns = np.ascontiguousarray(padded.view("<u2").reshape(lanes, _LANE_BYTES // 2).T)
        state = np.zeros(lanes, dtype=self._dtype)
        sixteen = self._dtype.type(16)
        for column in columns:
            state = self._two_byte_table[state.astype(np.uint16) ^ column] ^ (state >> sixteen)
        return self._fold(state)

    def _fold(self, state: Words) -> int:
        """Joins lanes pairwise, shifting the left by the right's length."""
        byte = self._dtype.type(0xFF)
        for shift in self._lane_shifts[: len(state).bit_length() - 1]:
            left, right = state[0::2], state[1::2]
            moved = shift[0][left & byte]
            for place in range(1, self._crc.size):
                moved ^= shift[place][(left >> self._dtype.type(8 * place)) & byte]
            state = moved ^ right
        return int(state[0])

    @cached_property
    def _two_byte_table(self) -> Words:
        low = self._table[np.arange(65536) & 0xFF] ^ (np.arange(65536) >> 8).astype(self._dtype)
        wide: Words = self._table[low & self._dtype.type(0xFF)] ^ (low >> self._dtype.type(8))
        return wide

    @cached_property
    def _lane_shifts(self) -> list[tuple[Words, ...]]:
        """Returns shift tables by register byte, per round of `_fold`."""
        matrix = self._crc.shift_one_byte()
        for _ in range(_LANE_BYTES.bit_length() - 1):
            matrix = square(matrix)
        shifts = []
        for _ in range(_LANES.bit_length() - 1):
            shifts.append(self._tables_of(matrix))
            matrix = square(matrix)
        return shifts

    def _tables_of(self, matrix: tuple[int, ...]) -> tuple[Words, ...]:
        return tuple(
            np.array([apply(matrix, byte << (8 * place)) for byte in range(256)], self._dtype)
            for place in range(self._crc.size)
        )
