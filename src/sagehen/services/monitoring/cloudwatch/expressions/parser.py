"""Parses expressions.

From the loosest: OR `||` · AND `&&` · comparisons · `+ -` · `* /` · unary `-` · `^`, which is
right-associative.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from sagehen.services.monitoring.cloudwatch.expressions.values import ExpressionError

__all__ = ["Array", "Binary", "Call", "Name", "Negation", "Node", "Number", "Text", "parse"]

MAX_DEPTH = 60

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<text>"[^"]*"|'[^']*')
      | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/^<>()\[\],])
    )""",
    re.VERBOSE,
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("OR", "||"),
    ("AND", "&&"),
    ("==", "!=", "<=", ">=", "<", ">"),
    ("+", "-"),
    ("*", "/"),
)
_SAME = {"||": "OR", "&&": "AND"}


class Number(NamedTuple):
    value: float


class Text(NamedTuple):
    value: str


class Name(NamedTuple):
    """The Id of another query, or an option such as REPEAT."""

    name: str


class Array(NamedTuple):
    elements: tuple["Node", ...]


class Negation(NamedTuple):
    operand: "Node"


class Binary(NamedTuple):
    operator: str
    left: "Node"
    right: "Node"


class Call(NamedTuple):
    function: str
    arguments: tuple["Node", ...]


Node = Number | Text | Name | Array | Negation | Binary | Call


class _Token(NamedTuple):
    kind: str
    text: str


_END = _Token("end", "")


@lru_cache(1024)
def parse(expression: str) -> Node:
    """Raises ExpressionError."""
    parser = _Parser(_tokens(expression))
    node = parser.level(0)
    parser.expect_end()
    return node


def _tokens(expression: str) -> list[_Token]:
    tokens, at, text = [], 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"it cannot be read at '{text[at : at + 20].strip()}'")
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind]))
        at = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def level(self, number: int) -> Node:
        if number == len(_LEVELS):
            return self._unary()
        left = self.level(number + 1)
        while self._next().text in _LEVELS[number] and self._next().kind != "text":
            operator = self._take().text
            left = Binary(_SAME.get(operator, operator), left, self.level(number + 1))
        return left

    def expect_end(self) -> None:
        if self._next() is not _END:
            raise self._unexpected()

    def _unary(self) -> Node:
        negated = False
        while self._next() in (_Token("sign", "-"), _Token("sign", "+")):
            negated ^= self._take().text == "-"
        operand = self._power()
        return Negation(operand) if negated else operand

    def _power(self) -> Node:
        base = self._primary()
        if self._next() != _Token("sign", "^"):
            return base
        self._take()
        self._enter()
        exponent = self._unary()
        self._depth -= 1
        return Binary("^", base, exponent)

    def _primary(self) -> Node:
        token = self._take()
        if token.kind == "number":
            number = float(token.text)
            if number == float("inf"):
                raise ExpressionError(f"the number {token.text[:20]}… is too large")
            return Number(number)
        if token.kind == "text":
            return Text(token.text[1:-1])
        if token.kind == "name":
            if self._next() != _Token("sign", "("):
                return Name(token.text)
            self._take()
            return Call(token.text, self._elements(")"))
        if token == _Token("sign", "["):
            return Array(self._elements("]"))
        if token == _Token("sign", "("):
            self._enter()
            node = self.level(0)
            self._expect(")")
            self._depth -= 1
            return node
        self._at -= token is not _END
        raise self._unexpected()

    def _elements(self, end: str) -> tuple[Node, ...]:
        self._enter()
        elements: list[Node] = []
        while self._next() != _Token("sign", end):
            if elements:
                self._expect(",")
            elements.append(self.level(0))
        self._expect(end)
        self._depth -= 1
        return tuple(elements)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"it is nested more than {MAX_DEPTH} deep")

    def _expect(self, sign: str) -> None:
        if self._next() != _Token("sign", sign):
            raise self._unexpected()
        self._take()

    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._next()
        self._at += token is not _END
        return token

    def _unexpected(self) -> ExpressionError:
        token = self._next()
        where = "at its end" if token is _END else f"at '{token.text[:20]}'"
        return ExpressionError(f"it cannot be read {where}")
