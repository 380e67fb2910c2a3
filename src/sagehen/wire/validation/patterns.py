"""Translates the Java patterns of AWS's models to Python.

Untranslatable patterns are refused, so that no constraint is dropped silently; a test covers all
patterns of the services served.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator

__all__ = ["Untranslatable", "compile_pattern"]


class Untranslatable(ValueError):
    """The pattern has no translation yet."""


_LINEAR = {
    # Both parts match spaces, so a failing match would backtrack exponentially.
    r".*(?:[ \r\n\t].*)*": r"[^\u0085\u2028\u2029]*",
    r".*(?:[ \r\n\t].*)*.*": r"[^\u0085\u2028\u2029]*",
}
"""Equivalents of patterns that take exponential time on hostile input."""

_POSIX = {
    "ASCII": r"\x00-\x7f",
    "Alnum": "a-zA-Z0-9",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Graph": r"\x21-\x7e",
    "Lower": "a-z",
    "Print": r"\x20-\x7e",
    "Upper": "A-Z",
}
"""Java's ASCII-only named classes."""

_ANY = r"[^\n\r\u0085\u2028\u2029]"
"""Java's dot stops at every kind of line end, Python's only at one."""

_TOKEN = re.compile(
    r"""
      (?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
    | \\p\{(?P<property>\w+)\}
    | (?P<escape>\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.))
    | (?P<anchor>\$)(?:\{1,[0-9]+\})?
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SAME_ESCAPES = frozenset("AbBdDsSwWtnrf")
"""escapes that mean the same in Java and Python"""

_CLASSES = frozenset((r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"))


@functools.cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern for `fullmatch`. Raises Untranslatable."""
    pattern = _LINEAR.get(pattern, pattern)
    if "&&" in pattern:
        raise Untranslatable(f"{pattern!r}: an intersection of classes")
    try:
        # Java's \d, \s and \w match ASCII only.
        return re.compile("".join(_translated(pattern)), re.ASCII)
    except re.error as error:
        raise Untranslatable(f"{pattern!r}: {error}") from error


def _translated(pattern: str) -> Iterator[str]:
    in_class = after_class = False
    for token in _TOKEN.finditer(pattern):
        if token["pair"]:
            yield f"\\U{_code_point(token['pair']):08x}"
        elif token["property"]:
            ranges = _property(token["property"])
            yield ranges if in_class else f"[{ranges}]"
        elif token["escape"]:
            yield _escape(token["escape"], pattern)
        elif token["anchor"]:
            # A repeated end of text (`${1,128}`, a slip in a model) means the end of text.
            yield token[0] if in_class else "$"
        elif in_class:
            in_class = token["other"] != "]"
            yield _in_class(token["other"], pattern, after_class)
        else:
            in_class = token["other"] == "["
            yield _ANY if token["other"] == "." else token["other"]
        after_class = token["escape"] in _CLASSES


def _in_class(character: str, pattern: str, after_class: bool) -> str:
    if character == "[":
        raise Untranslatable(f"{pattern!r}: a class within a class")
    # After \w, Python rejects a hyphen as a bad range; Java takes it literally.
    return r"\-" if character == "-" and after_class else character


def _escape(escape: str, pattern: str) -> str:
    letter = escape[1]
    if letter == "z":
        return r"\Z"
    if letter.isalnum() and letter not in _SAME_ESCAPES and len(escape) == 2:
        raise Untranslatable(f"{pattern!r}: {escape}")
    return escape


def _code_point(pair: str) -> int:
    high, low = int(pair[2:6], 16), int(pair[8:12], 16)
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


def _property(name: str) -> str:
    if name in _POSIX:
        return _POSIX[name]
    ranges = _categories().get(name)
    if ranges is None:
        raise Untranslatable(f"\\p{{{name}}}")
    return ranges


@functools.cache
def _categories() -> dict[str, str]:
    """Returns characters by category (`L`, `Lu`, …), as the inside of a class."""
    spans: dict[str, list[tuple[int, int]]] = {}
    start = 0
    before = unicodedata.category("\0")
    for point in range(1, sys.maxunicode + 2):
        category = unicodedata.category(chr(point)) if point <= sys.maxunicode else ""
        if category != before:
            for name in (before, before[0]):
                _extend(spans.setdefault(name, []), start, point - 1)
            start, before = point, category
    return {name: "".join(map(_span, parts)) for name, parts in spans.items()}


def _extend(spans: list[tuple[int, int]], first: int, last: int) -> None:
    if spans and spans[-1][1] == first - 1:
        first = spans.pop()[0]
    spans.append((first, last))


def _span(span: tuple[int, int]) -> str:
    return f"\\U{span[0]:08x}-\\U{span[1]:08x}"
