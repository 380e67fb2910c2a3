"""The rules of composite alarms: `ALARM(a) AND NOT (OK("b") OR INSUFFICIENT_DATA(c))`.

rule     = term { OR term }
term     = factor { AND factor }
factor   = [NOT] ( "(" rule ")" | TRUE | FALSE | STATE "(" alarm ")" | at_least )
at_least = AT_LEAST "(" number or percentage "," [NOT] STATE "," "(" alarm { "," alarm } ")" ")"
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sagehen.services.monitoring.alarms.records import AlarmState
from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.wire.errors import AwsError

__all__ = ["MAX_CHILDREN", "MAX_ELEMENTS", "Rule", "States", "child_name", "parse_rule"]

MAX_CHILDREN = 100
MAX_ELEMENTS = 500
MAX_DEPTH = 100

States = Mapping[str, AlarmState]
"""by alarm's name; an alarm that is gone is INSUFFICIENT_DATA"""
_Holds = Callable[[States], bool]

_WORD = re.compile(r"[A-Z_]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BARE = re.compile(r"[^\s(),\"][^(),\"]*")
_SHARE = re.compile(r"(\d{1,3})(%?)")
_EXPECTED = "'(', NOT, AT_LEAST, TRUE or FALSE, ALARM, OK, or INSUFFICIENT_DATA"
_STATES = frozenset(AlarmState)


class Rule(NamedTuple):
    """A parsed rule."""

    holds: _Holds
    """tells whether the composite alarm is in ALARM"""
    names: tuple[str, ...]
    """of the alarms that the rule names, in its order and each once"""


def child_name(name_or_arn: str) -> str:
    """Returns the name of an alarm that a rule or ActionsSuppressor names."""
    if name_or_arn.startswith("arn:") and ":alarm:" in name_or_arn:
        return name_or_arn.split(":alarm:", 1)[1]
    return name_or_arn


def parse_rule(text: str) -> Rule:
    """Raises AwsError."""
    if text != text.strip() or not text:
        raise refused("AlarmRule must not contain leading or trailing whitespace or be null")
    parser = _Parser(text)
    holds = parser.rule(0)
    parser.expect_end()
    if len(parser.names) > MAX_CHILDREN:
        raise refused(
            f"AlarmRule must not name more than {MAX_CHILDREN} alarms; it names "
            f"{len(parser.names)}."
        )
    return Rule(holds, tuple(parser.names))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._elements = 0
        self.names: dict[str, None] = {}

    def rule(self, depth: int) -> _Holds:
        terms = [self._term(depth)]
        while self._take_word("OR"):
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else lambda states: any(t(states) for t in terms)

    def expect_end(self) -> None:
        if self._next():
            raise self._unsupported("AND, OR or the end")

    def _term(self, depth: int) -> _Holds:
        factors = [self._factor(depth)]
        while self._take_word("AND"):
            factors.append(self._factor(depth))
        return factors[0] if len(factors) == 1 else lambda states: all(f(states) for f in factors)

    def _factor(self, depth: int) -> _Holds:
        self._count_element()
        negated = False
        while self._take_word("NOT"):
            self._count_element()
            negated = not negated
        holds = self._primary(depth)
        return (lambda states: not holds(states)) if negated else holds

    def _primary(self, depth: int) -> _Holds:
        if self._next() == "(":
            if depth >= MAX_DEPTH:
                raise refused(f"AlarmRule must not be nested more than {MAX_DEPTH} deep.")
            self._expect("(")
            holds = self.rule(depth + 1)
            self._expect(")")
            return holds
        for word, value in (("TRUE", True), ("FALSE", False)):
            if self._take_word(word):
                return lambda _, value=value: value  # type: ignore[misc]
        if self._take_word("AT_LEAST"):
            return self._at_least()
        state = self._state()
        self._expect("(")
        name = self._name()
        self._expect(")")
        return lambda states: _state_of(states, name) == state

    def _at_least(self) -> _Holds:
        self._expect("(")
        number, is_share = self._threshold()
        self._expect(",")
        negated = self._take_word("NOT")
        state = self._state()
        self._expect(",")
        self._expect("(")
        names = [self._name()]
        while self._next() == ",":
            self._expect(",")
            names.append(self._name())
        self._expect(")")
        self._expect(")")
        least = math.ceil(len(names) * number / 100) if is_share else number
        if not 1 <= least <= len(names):
            raise refused(
                f"Error in AlarmRule [AT_LEAST asks for {number}{'%' if is_share else ''} of "
                f"{len(names)} alarms]"
            )
        return lambda states: (
            sum((_state_of(states, name) == state) is not negated for name in names) >= least
        )

    def _threshold(self) -> tuple[int, bool]:
        self._skip_space()
        match = _SHARE.match(self._text, self._at)
        if match is None:
            raise self._unsupported("a number or a percentage")
        self._at = match.end()
        return int(match[1]), bool(match[2])

    def _state(self) -> AlarmState:
        for state in _STATES:
            if self._take_word(state):
                return state
        raise self._unsupported(_EXPECTED)

    def _name(self) -> str:
        self._count_element()
        self._skip_space()
        quoted = _QUOTED.match(self._text, self._at)
        match = quoted or _BARE.match(self._text, self._at)
        if match is None:
            raise self._unsupported("an alarm's name or ARN")
        self._at = match.end()
        text = re.sub(r"\\(.)", r"\1", match[1]) if quoted else match[0].strip()
        name = child_name(text)
        self.names[name] = None
        return name

    def _take_word(self, word: str) -> bool:
        self._skip_space()
        match = _WORD.match(self._text, self._at)
        if match is None or match[0] != word:
            return False
        self._at = match.end()
        return True

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._unsupported(f"'{character}'")
        self._at += 1

    def _next(self) -> str:
        """Returns the next character that is no space; empty at the end."""
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _count_element(self) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise refused(f"AlarmRule must not have more than {MAX_ELEMENTS} elements.")

    def _unsupported(self, expected: str) -> AwsError:
        word = _WORD.match(self._text, self._at)
        token = word[0] if word else self._next() or "end of the rule"
        return refused(
            f"Error in AlarmRule [Unsupported token '{token[:64]}' at char {self._at} must be: "
            f"{expected}]"
        )


def _state_of(states: States, name: str) -> AlarmState:
    return states.get(name, AlarmState.INSUFFICIENT_DATA)
