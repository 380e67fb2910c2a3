"""Compiles JSON filters of SNS and EventBridge into tests of objects.

Keys are ANDed; the values in a key's list and the choices of `$or` are ORed. Conditions on a list
of objects must hold for the same object. `exists: false` holds if no object has the key or, once an
alphabetically earlier key has selected an object, if that one lacks it, as in AWS's matcher
(aws/event-ruler, ACFinder). A dot in a key of filters and events stands for a level: `a.b` is `b`
within `a`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.conditions import ABSENT, Condition, Dialect, read_condition

__all__ = ["Test", "read_rules"]

Test = Callable[[Mapping[str, Any]], bool]
_Objects = Sequence[Mapping[str, Any]]
_Find = Callable[[_Objects], bool]


def read_rules(rules: Mapping[str, Any], dialect: Dialect, flat: str | None = None) -> Test:
    """Raises Invalid, or RecursionError for deep nesting.

    Args:
        flat: the scope that forbids nested objects.
    """
    read = _read(rules, dialect, flat)
    return lambda values: _holds(read, [values])


def _read(rules: Mapping[str, Any], dialect: Dialect, flat: str | None) -> "_All":
    overridden: list[tuple[str, Any]] = []
    if _is_or("$or", rules.get("$or")):
        rules, overridden = _settled(rules)
    if flat is None:
        rules = _nested(rules, overridden)
    for key, rule in overridden:
        _rule(key, rule, dialect, flat)  # Overridden rules must be valid, too.
    read = {key: _rule(key, rule, dialect, flat) for key, rule in rules.items()}
    return _All(tuple(read[key] for key in sorted(read)))


def _nested(rules: Mapping[str, Any], overridden: list[tuple[str, Any]]) -> dict[str, Any]:
    """Turns keys with dots into levels, and merges levels of the same name. Of two rules for a key
    the later wins; the other is added to `overridden`."""
    nested: dict[str, Any] = {}
    for key, rule in rules.items():
        name, dot, rest = key.partition(".")
        _merge(nested, {name: {rest: rule} if dot else rule}, overridden)
    return nested


def _merge(
    into: dict[str, Any], rules: Mapping[str, Any], overridden: list[tuple[str, Any]]
) -> None:
    for key, rule in rules.items():
        earlier = into.get(key)
        if isinstance(earlier, dict) and isinstance(rule, dict):
            into[key] = dict(earlier)
            _merge(into[key], rule, overridden)
            continue
        if key in into:
            overridden.append((key, earlier))
        into[key] = rule


def _settled(rules: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[tuple[str, Any]]]:
    """Moves keys beside `$or` that choices repeat into the choices; the later list wins, as in
    AWS's compiler (JsonRuleCompiler).

    Also returns overridden rules.
    """
    keys, choices = list(rules), rules["$or"]
    twice = {key for key, rule in rules.items() if isinstance(rule, list)} & _lists_in(choices)
    at = keys.index("$or")
    earlier, later = ({key for key in some if key in twice} for some in (keys[:at], keys[at + 1 :]))
    settled = [
        {
            **{key: rules[key] for key in keys[:at] if key in earlier - choice.keys()},
            **{key: rule for key, rule in choice.items() if key not in later},
            **{key: rules[key] for key in keys[at:] if key in later},
        }
        if choice
        else choice
        for choice in choices
    ]
    counted_out = [(key, rules[key]) for key in earlier]
    counted_out += [
        (key, rule) for choice in choices for key, rule in choice.items() if key in later
    ]
    rest = {key: rule for key, rule in rules.items() if key not in twice}
    return {**rest, "$or": settled}, counted_out


def _lists_in(choices: list[dict[str, Any]]) -> set[str]:
    """Returns the keys whose rules in all choices are lists."""
    lists: set[str] = set()
    names: set[str] = set()
    for choice in choices:
        for key, rule in choice.items():
            if _is_or(key, rule):
                lists |= _lists_in(rule)
            else:
                (lists if isinstance(rule, list) else names).add(key)
    return lists - names - {"$or"}


def _is_or(key: str, rule: Any) -> bool:
    return (
        key == "$or" and isinstance(rule, list) and all(isinstance(choice, dict) for choice in rule)
    )


def _rule(key: str, rule: Any, dialect: Dialect, flat: str | None) -> "_Rule":
    if _is_or(key, rule):
        if len(rule) < 2:
            raise Invalid('"$or" needs a list of at least two objects')
        return _Any(tuple(_read(_not_empty(key, choice), dialect, flat) for choice in rule))
    if isinstance(rule, list):
        if not rule:
            raise Invalid(f"Empty arrays are not allowed: {key}")
        return _Leaf(key, tuple(read_condition(choice, dialect) for choice in rule))
    if not isinstance(rule, dict):
        raise Invalid(f'"{key}" must be an object or an array')
    if flat is not None:
        raise Invalid(f'Filter policy scope {flat} does not support nested filter policy: "{key}"')
    return _Below(key, _read(_not_empty(key, rule), dialect, flat))


def _not_empty(key: str, rules: Mapping[str, Any]) -> Mapping[str, Any]:
    if not rules:
        raise Invalid(f"Empty objects are not allowed: {key}")
    return rules


@dataclass(frozen=True)
class _Leaf:
    """A key and its conditions."""

    key: str
    conditions: tuple[Condition, ...]

    def by_value(self, _: _Objects) -> _Find:
        # A list passes if any element does.
        return lambda objects: any(
            condition(value)
            for item in objects
            for value in _leaves(item.get(self.key, ABSENT))
            for condition in self.conditions
        )

    def by_absence(self, objects: _Objects) -> bool:
        return any(condition(ABSENT) for condition in self.conditions) and not any(
            True for item in objects for _ in _leaves(item.get(self.key, ABSENT))
        )


@dataclass(frozen=True)
class _Below:
    key: str
    rules: "_All"

    def by_value(self, among: _Objects) -> _Find:
        find = self.rules.by_value(self._below(among))
        return lambda objects: find(self._below(objects))

    def by_absence(self, objects: _Objects) -> bool:
        return self.rules.by_absence(self._below(objects))

    def _below(self, objects: _Objects) -> _Objects:
        return [below for item in objects for below in _level(item, self.key)]


@dataclass(frozen=True)
class _Any:
    choices: "tuple[_All, ...]"

    def by_value(self, among: _Objects) -> _Find:
        finds = [choice.by_value(among) for choice in self.choices]
        return lambda objects: any(find(objects) for find in finds)

    def by_absence(self, objects: _Objects) -> bool:
        return any(choice.by_absence(objects) for choice in self.choices)


@dataclass(frozen=True)
class _All:
    """An object's rules, sorted by key."""

    rules: "tuple[_Rule, ...]"

    def by_value(self, among: _Objects) -> _Find:
        """Tests for an object that one rule selects by value and all later rules accept.

        Earlier rules must hold by absence in all candidates, `among`.
        """
        finds: list[tuple[_Find, tuple[_Rule, ...]]] = []
        for number, rule in enumerate(self.rules):
            finds.append((rule.by_value(among), self.rules[number + 1 :]))
            if not rule.by_absence(among):
                break
        return lambda objects: any(
            find([item]) and all(_holds(later, [item]) for later in rest)
            for find, rest in finds
            for item in objects
        )

    def by_absence(self, objects: _Objects) -> bool:
        return all(rule.by_absence(objects) for rule in self.rules)


_Rule = _Leaf | _Below | _Any


def _holds(rule: _Rule | _All, objects: _Objects) -> bool:
    return rule.by_value(objects)(objects) or rule.by_absence(objects)


def _leaves(value: Any) -> Iterator[Any]:
    """Yields scalars, also from nested lists."""
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not ABSENT and not isinstance(value, dict):
        yield value


def _level(item: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Returns the objects of a key, also of keys with dots that begin with it."""
    start = f"{key}."
    dotted = {
        name.removeprefix(start): value for name, value in item.items() if name.startswith(start)
    }
    found = list(_objects(item.get(key)))
    if not dotted:
        return found
    return [{**below, **dotted} for below in found] or [dotted]


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        yield value
