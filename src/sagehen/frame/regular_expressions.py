"""Checks and compiles regular expressions from users."""

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import regex

from sagehen.base.errors import Invalid

__all__ = ["compile_expression"]

MAX_PARTS = 5000
"""counts each repetition at its minimum; bounds the memory"""

_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT, _parser.POSSESSIVE_REPEAT)


def compile_expression(text: str) -> "regex.Pattern[str]":
    """Compiles an expression of bounded size, with a group, by `regex`, whose searches take a
    time-out.

    Raises Invalid with the reason as the rest of a sentence.
    """
    try:
        _check(text)
        return regex.compile(text)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise Invalid(f"is no regular expression: {error}.") from error


def _check(text: str) -> None:
    """Checked first, because compiling `((a{9999}){9999})` takes all memory."""
    tree = _parser.parse(text)
    parts = _count(tree)
    if parts > MAX_PARTS:
        raise Invalid("repeats too much too often: take smaller numbers in its braces.")
    if tree.state.groups < 2:  # the whole match is one
        raise Invalid("has no group: put the part that is the number into parentheses.")


def _count(tree: Any) -> int:
    """Counts the parts after expanding each repetition to its minimum."""
    return sum(1 + _count_inside(kind, content) for kind, content in tree)


def _count_inside(kind: Any, content: Any) -> int:
    if isinstance(content, _parser.SubPattern):
        return _count(content)
    if not isinstance(content, (tuple, list)):
        return 0
    inside = sum(_count_inside(None, part) for part in content)
    return int(content[0]) * inside if kind in _REPEATS else inside
