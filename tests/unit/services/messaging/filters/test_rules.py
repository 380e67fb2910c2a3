"""Event patterns: absence, arrays, nesting; any pattern against a plain reading of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.policy import read_pattern


def matches(pattern: Any, event: Any) -> bool:
    return read_pattern(json.dumps(pattern)).matches(event)


def test_absence() -> None:
    pattern = {"detail": {"error": [{"exists": False}]}}
    assert matches(pattern, {"detail": {}})
    assert matches(pattern, {})
    assert not matches(pattern, {"detail": {"error": None}})
    assert matches(pattern, {"detail": {"error": {"only": "leaves exist"}}})
    assert matches({"a": ["x", {"exists": False}]}, {"b": 1})


def test_absence_in_a_list_of_objects() -> None:
    # The answers of aws/event-ruler's Machine to the same.
    one_has_it = {"a": [{"b": 1}, {"c": 2}]}
    absent = [{"exists": False}]
    assert not matches({"a": {"b": absent}}, one_has_it)
    assert matches({"a": {"d": absent}}, one_has_it)
    assert not matches({"a": {"b": absent, "c": [2]}}, one_has_it)
    assert matches({"a": {"b": [1], "c": absent}}, one_has_it), "b says which of them is meant"
    assert not matches({"a": {"b": [1], "c": absent}}, {"a": [{"b": 1, "c": 2}, {}]})
    deeper = {"a": [{"b": [{"c": 1}, {"d": 2}]}, {"b": [{"d": 3}], "e": 4}]}
    assert not matches({"a": {"b": {"c": absent}, "e": [4]}}, deeper)
    assert matches({"a": {"b": {"d": [3], "f": absent}, "e": [4]}}, deeper)


@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        ({"b": [1], "$or": [{"b": [2]}, {"c": [3]}]}, [{"b": 2}, {"b": 1, "c": 3}], [{"b": 1}]),
        ({"$or": [{"b": [2]}, {"c": [3]}], "b": [1]}, [{"b": 1}], [{"b": 2}, {"b": 2, "c": 3}]),
        (
            {"b": [1], "$or": [{"$or": [{"b": [2]}, {"d": [4]}]}, {"c": [3]}]},
            [{"b": 2}, {"b": 1, "d": 4}, {"b": 1, "c": 3}],
            [{"b": 1}, {"b": 2.5, "c": 3}],
        ),
    ],
)
def test_of_two_lists_for_a_key_the_later_counts(
    pattern: Any, wanted: list[Any], unwanted: list[Any]
) -> None:
    assert [one for one in wanted if not matches(pattern, one)] == []
    assert [one for one in unwanted if matches(pattern, one)] == []


def test_a_list_that_does_not_count_has_to_be_one() -> None:
    with pytest.raises(Invalid, match="Unrecognized match type nope"):
        read_pattern('{"b": [{"nope": 1}], "$or": [{"b": [2]}, {"b": [3]}]}')


def test_or_stands_beside_other_keys() -> None:
    pattern = {
        "source": ["s"],
        "detail": {"$or": [{"c": [1]}, {"d": [2], "e": [3]}], "f": ["x"]},
    }
    assert matches(pattern, {"source": "s", "detail": {"c": 1, "f": "x"}})
    assert matches(pattern, {"source": "s", "detail": {"d": 2, "e": 3, "f": "x"}})
    assert not matches(pattern, {"source": "s", "detail": {"d": 2, "f": "x"}})
    assert not matches(pattern, {"source": "s", "detail": {"c": 1}})


def test_one_object_of_a_list_has_to_have_it_all() -> None:
    pattern = {"a": {"b": [1], "c": [2]}}
    assert matches(pattern, {"a": [{"b": 0}, {"b": 1, "c": 2}]})
    assert not matches(pattern, {"a": [{"b": 1}, {"c": 2}]})
    assert matches({"a": [2]}, {"a": [[1], [[2]]]}), "lists of lists have their leaves"


def test_an_event_that_is_nested_without_end_matches_nothing() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert not matches({"a": ["x"]}, {"a": deep})


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[]", "Filter is not an object"),
        ("{}", "Empty objects are not allowed"),
        ('{"a": {}}', "Empty objects are not allowed"),
        ('{"a": []}', "Empty arrays are not allowed"),
        ('{"a": "x"}', '"a" must be an object or an array'),
        ('{"a": [["x"]]}', "Match value must be String, number, true, false, or null"),
        ('{"a": [{"like": "x"}]}', "Unrecognized match type like"),
        ('{"a": [{"prefix": "x", "suffix": "y"}]}', "Only one key allowed"),
        ('{"a": [{"prefix": {"suffix": "x"}}]}', "Unsupported prefix pattern: suffix"),
        ('{"a": [{"prefix": {"equals-ignore-case": 1}}]}', "equals-ignore-case match pattern"),
        ('{"a": [{"wildcard": "a**b"}]}', "Consecutive wildcard characters at pos 1"),
        ('{"a": [{"wildcard": "a\\\\b"}]}', "Invalid escape character"),
        ('{"a": [{"wildcard": "a\\\\"}]}', "Invalid escape character"),
        ('{"a": [{"wildcard": 5}]}', "wildcard match pattern must be a string"),
        ('{"a": [{"anything-but": {"numeric": 1}}]}', "anything-but takes only"),
        ('{"a": [{"anything-but": {"prefix": ""}}]}', "prefix match pattern"),
        ('{"a": [{"anything-but": [true]}]}', "anything-but takes"),
        ('{"a": [{"numeric": [">", 6e9]}]}', "between -5000000000 and 5000000000"),
        ('{"a": [{"numeric": [">", 5, "<", 5]}]}', "Bottom must be less than top"),
        ('{"a": [{"exists": "yes"}]}', "exists match pattern must be either true or false"),
        ('{"$or": [{"a": [1]}]}', '"$or" needs a list of at least two'),
        ('{"$or": [{"a": [1]}, {}]}', "Empty objects are not allowed"),
        ('{"a": [1]', "Unexpected character"),
        ('{"a": [NaN]}', "Unexpected character"),
        ('{"":' * 800 + "[1]" + "}" * 800, "nested too deeply"),
        ('{"a": ["' + "x" * 4096 + '"]}', "over 4096 characters"),
    ],
)  # fmt: skip
def test_bad_patterns(pattern: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_pattern(pattern)
    assert why in str(caught.value)


KEYS = st.sampled_from("ab")
SCALARS = st.sampled_from(["", "x", "xy", "yx", 0, 1, 2.5, True, None])
EVENTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
        max_leaves=6,
    ),
    max_size=2,
)
CONDITIONS = st.one_of(
    SCALARS,
    st.fixed_dictionaries({"prefix": st.sampled_from(["x", "y"])}),
    st.fixed_dictionaries({"suffix": st.sampled_from(["x", "y"])}),
    st.fixed_dictionaries({"wildcard": st.sampled_from(["*", "x*", "*y", "x*y", "*y*"])}),
    st.fixed_dictionaries({"anything-but": st.sampled_from(["x", 1, ["x", "xy"], [0, 2.5]])}),
    st.fixed_dictionaries({"numeric": st.sampled_from([[">", 0], ["=", 1], [">=", 0, "<", 2]])}),
    st.fixed_dictionaries({"exists": st.booleans()}),
)
PATTERNS = st.dictionaries(
    KEYS,
    st.recursive(
        st.lists(CONDITIONS, min_size=1, max_size=2),
        lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=2),
        max_leaves=4,
    ),
    min_size=1,
    max_size=2,
)


@given(PATTERNS, EVENTS)
def test_any_pattern_means_what_it_says(pattern: dict[str, Any], event: dict[str, Any]) -> None:
    assert matches(pattern, event) == plain_object(pattern, event)


@given(PATTERNS, PATTERNS, EVENTS)
def test_or_is_or(one: dict[str, Any], other: dict[str, Any], event: dict[str, Any]) -> None:
    either = matches(one, event) or matches(other, event)
    assert matches({"$or": [one, other]}, event) == either


def plain_object(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    for key, rule in pattern.items():
        if isinstance(rule, dict):
            value = event.get(key)
            inner = value if isinstance(value, list) else [value]
            objects = [one for one in inner if isinstance(one, dict)]
            if not any(plain_object(rule, one) for one in objects or [{}]):
                return False
        else:
            values = leaves(event[key]) if key in event else []
            if not any(plain_list(one, values) for one in rule):
                return False
    return True


def leaves(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if isinstance(value, dict) else [value]


def plain_list(condition: Any, values: list[Any]) -> bool:
    if condition == {"exists": False}:
        return not values
    return any(plain(condition, value) for value in values)


def plain(condition: Any, value: Any) -> bool:
    match condition:
        case {"exists": True}:
            return True
        case {"prefix": text}:
            return isinstance(value, str) and value[: len(text)] == text
        case {"suffix": text}:
            return isinstance(value, str) and value[-len(text) :] == text
        case {"wildcard": text}:
            return isinstance(value, str) and glob(text, value)
        case {"anything-but": listed}:
            unwanted = listed if isinstance(listed, list) else [listed]
            return not any(plain(one, value) for one in unwanted)
        case {"numeric": bounds}:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            pairs = [bounds[i : i + 2] for i in range(0, len(bounds), 2)]
            return number and all(compare(value, *pair) for pair in pairs)
    return json.dumps(condition) == json.dumps(value)


def glob(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return glob(pattern[1:], text) or (bool(text) and glob(pattern, text[1:]))
    return bool(text) and pattern[0] == text[0] and glob(pattern[1:], text[1:])


def compare(value: float, operator: str, bound: float) -> bool:
    return {
        "=": value == bound, "<": value < bound, ">": value > bound, ">=": value >= bound
    }[operator]  # fmt: skip
