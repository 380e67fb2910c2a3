"""Reads CSV of plain decimal numbers, thousands at once.

NumPy's operations take all numbers of a chunk together: eight digits of each are the bytes of a
64-bit word, and few multiplications make a number of them. Python's `float` rounds in the same way.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK_BYTES", "has_infinity", "read_plain_rows"]

CHUNK_BYTES = 64 * 1024
"""of text; what is made of it stays in the processor's cache"""
MOST_DIGITS = 24
"""in three words; they may begin with zeros"""
MOST_DECIMALS = 22
"""Higher powers of ten are no float64."""

Numbers = NDArray[np.float32] | NDArray[np.float64]
_Integers = NDArray[np.int64]
_Words = NDArray[np.uint64]

_COMMA, _MINUS, _DOT, _NEWLINE = b",-.\n"
_PADDING = bytes(24)
"""before the text, so that three words end with the first number"""
_POWERS = np.array([float(f"1e{power}") for power in range(MOST_DECIMALS + 1)])
_WORD_POWERS = np.array([1, 10**8, 10**16], np.uint64)
_MOST_IN_LAST_WORD = np.uint64(1843)
"""With more, the whole would have more than 64 bits."""
_EXACT = np.uint64(2**53)
"""Integers up to this one are float64, as powers of ten are: their quotient is rounded once."""
_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TEN, _EIGHT, _SIXTEEN, _THIRTY_TWO = (np.uint64(number) for number in (10, 8, 16, 32))
_PAIRS = np.uint64(0x000000FF000000FF)
_FIRST_PAIRS = np.uint64(100 + (1_000_000 << 32))
_SECOND_PAIRS = np.uint64(1 + (10_000 << 32))
_LOST_BITS = np.int64((1 << 29) - 1)
"""of a float64, where it becomes a float32"""
_HALF = np.int64(1 << 28)
_NEAR = 4
"""units in the last place of a float64; a quotient of two rounded numbers is wrong by less"""


def read_plain_rows(lines: bytes, columns: int, form: str) -> Numbers | None:
    """Returns the cells of rows as an array's `form` has them; an empty cell is NaN.

    `lines` are whole, and end with a newline. Returns None for anything but commas and decimals
    without an exponent, for rows of other lengths, and for more digits than can be read exactly.
    """
    octets = np.frombuffer(lines, np.uint8)
    # Also finds what belongs to no number, such as spaces.
    marks = np.flatnonzero((octets <= _DOT) & (octets != _MINUS))
    kinds = octets.take(marks)
    last_marks = np.flatnonzero(kinds != _DOT)
    """of each cell, among all marks"""
    if not _is_grid(kinds.take(last_marks), columns):
        return None
    ends = marks.take(last_marks)
    starts = _starts(ends)
    # Before the very first mark stands the last one here, which is a newline.
    before = last_marks - 1
    has_dot = kinds.take(before) == _DOT
    dots = len(marks) - len(ends)
    if dots != np.count_nonzero(has_dot):
        return None  # two in a cell
    is_negative = octets.take(starts) == _MINUS
    sizes = ends - starts
    counts = sizes - is_negative - has_dot
    is_empty = counts == 0
    if np.any(sizes[is_empty]):
        return None  # a sign or a dot alone
    if dots:
        ends_of_digits = ends - last_marks + np.arange(len(ends))
        integers = _integers(lines.translate(None, b"."), ends_of_digits, counts)
    else:
        integers = _integers(lines, ends, counts)
    if integers is None:
        return None
    is_exact = integers.max() <= _EXACT
    if not is_exact and form != "f":
        return None
    decimals = (ends - marks.take(before) - 1) * has_dot if dots else None
    if decimals is not None and decimals.max() > MOST_DECIMALS:
        return None
    numbers = _scaled(integers, decimals)
    np.negative(numbers, out=numbers, where=is_negative)
    numbers[is_empty] = np.nan
    if form != "f":
        return numbers
    if not is_exact:
        _correct(numbers, lines, starts, ends)
    return numbers.astype(np.float32)


def _is_grid(ends: NDArray[np.uint8], columns: int) -> bool:
    """Whether each row has so many cells, by the characters that end the cells."""
    if len(ends) % columns:
        return False
    rows = ends.reshape(-1, columns)
    return bool(np.all(rows[:, -1] == _NEWLINE) and np.all(rows[:, :-1] == _COMMA))


def _integers(digits: bytes, ends: _Integers, counts: _Integers) -> _Words | None:
    """Returns the number that `counts` digits before each of the `ends` make.

    None if one of them is no digit, or a number has more than 64 bits.
    """
    most = int(counts.max())
    if most > MOST_DIGITS:
        return None
    padded = _PADDING + digits
    # A word begins at each byte.
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    total: _Words | None = None
    for number in range((most + 7) // 8 or 1):
        part = words.take(ends + (len(_PADDING) - 8 * (number + 1)))
        part ^= _ZEROS
        # The bytes before a number's digits become zeros.
        shift = (64 - 8 * np.clip(counts - 8 * number, 0, 8)).astype(np.uint64)
        part >>= shift
        part <<= shift
        if np.any(((part + _ABOVE_NINE) | part) & _HIGH_BITS):
            return None
        value = _eight_digits(part)
        if number == 2 and value.max() > _MOST_IN_LAST_WORD:
            return None
        total = value if total is None else total + value * _WORD_POWERS[number]
    return total


def _starts(ends: _Integers) -> _Integers:
    """Returns where each cell begins: behind the end of the one before."""
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    return starts


def _scaled(integers: _Words, decimals: _Integers | None) -> NDArray[np.float64]:
    """Returns each of the integers with so many of its digits behind the dot."""
    numbers = integers.astype(np.float64)
    if decimals is not None:
        numbers /= _POWERS.take(decimals)
    return numbers


def _eight_digits(words: _Words) -> _Words:
    """Makes numbers of words whose bytes are digits, the first in the lowest byte."""
    pairs = words * _TEN
    pairs += words >> _EIGHT
    first = pairs & _PAIRS
    first *= _FIRST_PAIRS
    pairs >>= _SIXTEEN
    pairs &= _PAIRS
    pairs *= _SECOND_PAIRS
    pairs += first
    pairs >>= _THIRTY_TWO
    return pairs


def _correct(
    numbers: NDArray[np.float64], lines: bytes, starts: _Integers, ends: _Integers
) -> None:
    """Reads those again that are about halfway between two float32, where the last bits decide."""
    lost = numbers.view(np.int64) & _LOST_BITS
    for at in np.flatnonzero(np.abs(lost - _HALF) <= _NEAR).tolist():
        numbers[at] = float(lines[starts[at] : ends[at]])


def has_infinity(cells: "array[float]") -> bool:
    """`cells` are single precision."""
    return bool(np.isinf(np.frombuffer(cells, np.float32)).any())
