"""Filter policies: operators, nesting, limits, in the words of SNS's guide."""

import json
from typing import Any

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.policy import ATTRIBUTES, BODY, read_pattern, read_policy
from sagehen.services.messaging.message_attributes import MessageAttribute


def body_wanted(policy: dict[str, Any], body: Any) -> bool:
    return read_policy(json.dumps(policy), BODY).accepts(json.dumps(body), {})


def attributes_wanted(policy: dict[str, Any], **attributes: Any) -> bool:
    kinds = {str: "String", int: "Number", float: "Number", list: "String.Array"}
    given = {
        name: MessageAttribute(
            kinds[type(value)], value if isinstance(value, str) else json.dumps(value)
        )
        for name, value in attributes.items()
    }
    return read_policy(json.dumps(policy), ATTRIBUTES).accepts("no matter", given)


@pytest.mark.parametrize(
    ("condition", "wanted", "unwanted"),
    [
        ("rugby", ["rugby"], ["Rugby", "rugb", 5, True, None]),
        (5, [5, 5.0, 5.000001], ["5", 6, True, None]),
        (1, [1], [True]),
        (True, [True], [1, "true", False]),
        (None, [None], ["null", False, 0]),
        ({"prefix": "ba"}, ["ball", "ba"], ["Ball", "ab", 5]),
        ({"suffix": "ball"}, ["football", "ball"], ["balls", 5]),
        ({"equals-ignore-case": "Tennis"}, ["TENNIS", "tennis"], ["tenni", 1]),
        ({"anything-but": "x"}, ["y", 5, True], ["x"]),
        ({"anything-but": ["x", 5]}, ["y", 6], ["x", 5]),
        ({"anything-but": {"prefix": "order-"}}, ["other", 5], ["order-1"]),
        ({"anything-but": {"prefix": ["a", "b"]}}, ["c"], ["a1", "b1"]),
        ({"anything-but": {"suffix": "-x"}}, ["a"], ["a-x"]),
        ({"numeric": ["=", 301.5]}, [301.5, 3.015e2], [301, "301.5", True]),
        ({"numeric": ["<", 0]}, [-1], [0, 1]),
        ({"numeric": [">=", 0]}, [0, 1], [-1]),
        ({"numeric": [">", 0, "<=", 150]}, [1, 150], [0, 151]),
        ({"numeric": ["=", 0.123456]}, [0.12346], [0.1234]),
        ({"cidr": "10.0.0.0/24"}, ["10.0.0.255"], ["10.0.1.1", "nowhere", 10]),
        ({"cidr": "fd00::/8"}, ["fd12::1"], ["10.0.0.1", "fe80::1"]),
        ({"exists": True}, ["", 0, None], []),
    ],
)
def test_conditions(condition: Any, wanted: list[Any], unwanted: list[Any]) -> None:
    policy = {"key": [condition]}
    assert [value for value in wanted if not body_wanted(policy, {"key": value})] == []
    assert [value for value in unwanted if body_wanted(policy, {"key": value})] == []
    assert not body_wanted(policy, {"other": "rugby"})


def test_absent_keys() -> None:
    assert body_wanted({"key": [{"exists": False}]}, {})
    assert not body_wanted({"key": [{"exists": False}]}, {"key": None})
    assert body_wanted({"a": {"b": [{"exists": False}]}}, {"c": 1})
    assert not body_wanted({"a": {"b": [{"anything-but": "x"}]}}, {"c": 1})


def test_keys_are_anded_values_are_ored() -> None:
    policy = {"store": ["a", "b"], "price": [{"numeric": [">", 10]}, 5]}
    assert body_wanted(policy, {"store": "a", "price": 11})
    assert body_wanted(policy, {"store": "b", "price": 5})
    assert not body_wanted(policy, {"store": "b", "price": 6})
    assert not body_wanted(policy, {"store": "c", "price": 5})
    assert not body_wanted(policy, {"store": "a"})


def test_or() -> None:
    policy = {"source": ["s"], "$or": [{"name": ["n"]}, {"size": [{"numeric": ["<", 3]}]}]}
    assert body_wanted(policy, {"source": "s", "name": "n"})
    assert body_wanted(policy, {"source": "s", "size": 2})
    assert not body_wanted(policy, {"source": "s", "size": 3, "name": "x"})
    assert not body_wanted(policy, {"name": "n"})


def test_nested_bodies() -> None:
    failed = {"invocationStatus": ["Failed"], "requestParameters": {"endpointName": ["demo"]}}
    body = {"invocationStatus": "Failed", "requestParameters": {"endpointName": "demo", "a": 1}}
    assert body_wanted(failed, body)
    assert not body_wanted(failed, {**body, "requestParameters": {"endpointName": "other"}})
    assert not body_wanted(failed, {**body, "requestParameters": "demo"})


def test_arrays_have_what_one_element_has() -> None:
    assert body_wanted({"tags": ["b"]}, {"tags": ["a", "b"]})
    assert body_wanted({"tags": [{"anything-but": ["a"]}]}, {"tags": ["a", "b"]})
    assert not body_wanted({"tags": [{"anything-but": ["a"]}]}, {"tags": ["a"]})
    assert not body_wanted({"tags": ["b"]}, {"tags": []})
    records = {"Records": {"name": ["n"], "key": [{"prefix": "in/"}]}}
    assert body_wanted(records, {"Records": [{"name": "x"}, {"name": "n", "key": "in/1"}]})
    # One element has to have all of it.
    assert not body_wanted(records, {"Records": [{"name": "n"}, {"key": "in/1"}]})


@pytest.mark.parametrize("body", ["no json", "[1]", '"text"', "", "[" * 100_000, '{"a":NaN}'])
def test_bodies_that_are_no_object_are_not_wanted(body: str) -> None:
    assert not read_policy('{"a": [{"exists": false}]}', BODY).accepts(body, {})


def test_no_policy_wants_everything() -> None:
    assert read_policy("{}", ATTRIBUTES).accepts("text", {})
    assert read_policy("{}", BODY).accepts("{}", {})


def test_attributes() -> None:
    policy = {"customer_interests": ["rugby"], "price": [{"numeric": [">=", 100]}]}
    assert attributes_wanted(policy, customer_interests=["soccer", "rugby"], price=100)
    assert attributes_wanted(policy, customer_interests="rugby", price=100.5)
    assert not attributes_wanted(policy, customer_interests="rugby", price="100")
    assert not attributes_wanted(policy, customer_interests="rugby")
    but = {"customer_interests": [{"anything-but": ["rugby", "tennis"]}]}
    assert attributes_wanted(but, customer_interests=["rugby", "baseball"])
    assert not attributes_wanted(but, customer_interests="rugby")
    assert not attributes_wanted(but, other="rugby")


def test_binary_attributes_are_passed_over() -> None:
    policy = read_policy('{"raw": [{"exists": true}]}', ATTRIBUTES)
    assert not policy.accepts("", {"raw": MessageAttribute("Binary", binary_value=b"x")})


def test_attributes_with_custom_types() -> None:
    policy = read_policy('{"n": [5], "t": ["x"]}', ATTRIBUTES)
    given = {"n": MessageAttribute("Number.int", "5.0"), "t": MessageAttribute("String.kind", "x")}
    assert policy.accepts("", given)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("{", "failed to parse JSON"),
        ("[" * 100_000, "failed to parse JSON"),
        ("[]", "must be a JSON object"),
        ('{"a": "b"}', "must be an object or an array"),
        ('{"a": []}', "Empty arrays"),
        ('{"a": [["b"]]}', "Match value must be"),
        ('{"a": [{"prefix": "a", "suffix": "b"}]}', "Only one key"),
        ('{"a": [{}]}', "Only one key"),
        ('{"a": [{"like": "a"}]}', "Unrecognized match type like"),
        ('{"a": [{"prefix": 5}]}', "prefix match pattern must be a string"),
        ('{"a": [{"exists": "yes"}]}', "either true or false"),
        ('{"a": [{"numeric": [">", 5, ">", 6]}]}', "range has"),
        ('{"a": [{"numeric": [">", 5, "<", 5]}]}', "Bottom must be less"),
        ('{"a": [{"numeric": ["=="]}]}', "numeric takes a list"),
        ('{"a": [{"numeric": ["==", 5]}]}', "Unrecognized numeric range operator"),
        ('{"a": [{"numeric": ["=", "5"]}]}', "must be numeric"),
        ('{"a": [{"numeric": ["=", 1000000001]}]}', "must be between"),
        ('{"a": [{"numeric": [[], 1]}]}', "Unrecognized numeric range operator"),
        ('{"a": [{"cidr": "10.0.0.0/33"}]}', "cidr"),
        ('{"a": [{"anything-but": []}]}', "anything-but takes"),
        ('{"a": [{"anything-but": {"exists": true}}]}', "anything-but takes only"),
        ('{"a": [{"anything-but": {"prefix": []}}]}', "at least one"),
        ('{"a": {"b": ["c"]}}', "does not support nested"),
        ('{"$or": [{"a": ["b"]}]}', "at least two"),
        (json.dumps({f"k{n}": ["v"] for n in range(6)}), "more than 5 keys"),
        (json.dumps({"a": list(range(151))}), "Filter policy is too complex"),
        (json.dumps({"a": ["x" * 300_000]}), "over 262144 bytes"),
    ],
)
def test_what_is_no_policy(policy: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read_policy(policy, ATTRIBUTES)


def test_depth_counts_towards_the_combinations() -> None:
    """The guide's own example: 4 x 3 levels, 3 x 2, 3 x 1."""
    nested = {"key_a": {"key_b": {"key_c": ["1", "2", "3", "4"]}}, "key_f": ["1", "2", "3"]}
    read_policy(json.dumps(nested), BODY)
    nested["key_d"] = {"key_e": ["1", "2", "3"]}
    with pytest.raises(Invalid, match="too complex"):
        read_policy(json.dumps(nested), BODY)
    with pytest.raises(Invalid, match="Empty objects"):
        read_policy('{"a": {}}', BODY)


def test_numbers_of_any_length_can_be_asked_about() -> None:
    policy = {"a": [{"numeric": [">", 5]}]}
    long = "9" * 400
    assert read_policy(json.dumps(policy), BODY).accepts(f'{{"a":{long}}}', {})
    assert not read_policy(json.dumps(policy), BODY).accepts(f'{{"a":-{long}}}', {})
    number = {"a": MessageAttribute("Number", long)}
    assert not read_policy('{"a":[5]}', ATTRIBUTES).accepts("", number)


def test_a_policy_nested_without_end_is_refused() -> None:
    nested = '{"a":' * 600 + '["x"]' + "}" * 600
    with pytest.raises(Invalid, match="Filter policy is"):
        read_policy(nested, BODY)


def test_levels_by_dots_count_as_nested_ones() -> None:
    dotted = json.dumps({"a.b.c": list(range(51))})
    with pytest.raises(Invalid, match="too complex"):
        read_policy(dotted, BODY)
    read_policy(dotted, ATTRIBUTES)  # names of attributes may have dots
    with pytest.raises(Invalid, match="too complex"):
        read_policy(json.dumps({"a." * 250 + "a": ["x"]}), BODY)


@pytest.mark.parametrize(
    "policy",
    [
        {"a.b": 1, "a": ["x"]},
        {"a.b": None, "a": {"b": ["x"]}},
        {"a": {"b": {"c": 1}}, "a.b": ["x"]},
        {"a": {"b": {"c": 1}}, "a.b.c": ["x"]},
    ],
)
def test_overridden_rules_must_be_valid(policy: dict[str, Any]) -> None:
    for read in (read_pattern, lambda text: read_policy(text, BODY)):
        with pytest.raises(Invalid, match="must be an object or an array"):
            read(json.dumps(policy))


@pytest.mark.parametrize("scope", [ATTRIBUTES, BODY])
def test_message_nested_too_deeply_is_not_accepted(scope: str) -> None:
    policy = read_policy('{"a": ["x"]}', scope)
    for depth in range(850, 1000):  # what Python can read and what it can walk differ by a little
        nested = "[" * depth + "]" * depth
        attributes = {"a": MessageAttribute("String.Array", nested)}
        assert not policy.accepts(f'{{"a":{nested}}}', attributes)
