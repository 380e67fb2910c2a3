"""Conditions of event patterns: which values each operator accepts."""

import json
from typing import Any

import pytest

from sagehen.services.messaging.filters.policy import read_pattern


def matches(pattern: Any, event: Any) -> bool:
    return read_pattern(json.dumps(pattern)).matches(event)


@pytest.mark.parametrize(
    ("condition", "wanted", "unwanted"),
    [
        ("a", ["a"], ["A", "", None, 1]),
        ("", [""], [None, "a"]),
        (None, [None], ["", "null", False, 0]),
        (True, [True], ["true", 1]),
        (300, [300, 300.0, 3e2], ["300", True]),
        ({"prefix": "ab"}, ["ab", "abc"], ["a", "Abc", 1]),
        ({"prefix": ""}, ["", "x"], [None, 1]),
        ({"prefix": {"equals-ignore-case": "aB"}}, ["ab", "ABc"], ["ba"]),
        ({"suffix": ".png"}, ["x.png"], [".PNG", "png"]),
        ({"suffix": {"equals-ignore-case": ".png"}}, ["x.PNG"], ["x.pn"]),
        ({"equals-ignore-case": "Alice"}, ["aLICE"], ["alic", 1]),
        ({"equals-ignore-case": "SS"}, ["ss"], ["ß"]),
        ({"wildcard": "*"}, ["", "x"], [1, None]),
        ({"wildcard": "dir/*.png"}, ["dir/.png", "dir/a/b.png"], ["dir/a.pn", "xdir/.png"]),
        ({"wildcard": "a*b*a"}, ["aba", "axxbya"], ["ab", "a", "aa"]),
        ({"wildcard": "ab*ba"}, ["abba", "abxba"], ["aba"]),
        ({"wildcard": "a\\*b\\\\*"}, ["a*b\\", "a*b\\c"], ["axb\\", "a*b"]),
        ({"anything-but": "a"}, ["b", 1, True, None], ["a"]),
        ({"anything-but": ["a", "b"]}, ["c"], ["a", "b"]),
        ({"anything-but": [1, 2]}, [3, "1"], [1, 2.0]),
        ({"anything-but": {"prefix": "a"}}, ["b", 5, True, None], ["ab"]),
        ({"anything-but": {"suffix": ["a", "b"]}}, ["c"], ["xa", "xb"]),
        ({"anything-but": {"equals-ignore-case": ["A"]}}, ["b"], ["a", "A"]),
        ({"anything-but": {"wildcard": ["*/lib/*", "x"]}}, ["a/b"], ["a/lib/b", "x"]),
        ({"anything-but": {"equals-ignore-case": ""}}, ["a", 1], [""]),
        ({"anything-but": {"wildcard": ["", "x*"]}}, ["a"], ["", "xa"]),
        ({"numeric": ["=", 3.018e2]}, [301.8], [301.80001, "301.8"]),
        ({"numeric": [">", 0, "<=", 5]}, [5, 0.000001], [0, 5.000001, None]),
        ({"numeric": ["<", -5e9]}, [-6e9], [-5e9]),
        ({"cidr": "10.0.0.0/24"}, ["10.0.0.1"], ["10.0.1.1", "x"]),
        ({"exists": True}, ["", None, 0, False], []),
    ],
)  # fmt: skip
def test_conditions(condition: Any, wanted: list[Any], unwanted: list[Any]) -> None:
    pattern = {"detail": {"key": [condition]}}
    assert [one for one in wanted if not matches(pattern, {"detail": {"key": one}})] == []
    assert [one for one in unwanted if matches(pattern, {"detail": {"key": one}})] == []
    assert not matches(pattern, {"detail": {}})
    assert matches(pattern, {"detail": {"key": [*unwanted, *wanted]}}), "of a list one is enough"
    assert not matches(pattern, {"detail": {"key": []}})
