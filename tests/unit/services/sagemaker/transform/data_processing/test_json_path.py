"""Filters select what the guide's examples say, and what cannot be a path is refused."""

import pytest

from sagehen.services.sagemaker.transform.data_processing.json_path import (
    MixedRanges,
    PartMissing,
    PathSyntaxError,
    parse_path,
    part_selector,
)

VALUE = {
    "id": 7,
    "features": [1, 2, 3, 4, 5],
    "nested": {"a": {"b": 1}, "c": {"b": 2}},
    "rows": [{"x": 1, "y": 2}, {"x": 3, "y": 4}],
    "other-name": True,
}


def selected(expression, value=VALUE, **options):
    (found,) = part_selector(parse_path(expression, **options))([value])
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$", VALUE),
        ("$.id", 7),
        ("$['id']", 7),
        ("$[ 'id' ]", 7),
        ("$.nested.a.b", 1),
        ("$['nested']['a'].b", 1),
        ("$['other-name']", True),
        ("$.other-name", True),
        ("$['id', 'features']", {"id": 7, "features": [1, 2, 3, 4, 5]}),
        ("$['id','absent']", {"id": 7}),
        ("$.features[0]", 1),
        ("$.features[-1]", 5),
        ("$.features[0,-1]", [1, 5]),
        ("$.features[1:]", [2, 3, 4, 5]),
        ("$.features[:2]", [1, 2]),
        ("$.features[1:4]", [2, 3, 4]),
        ("$.features[:-1]", [1, 2, 3, 4]),
        ("$.features[ 1 : 4 ]", [2, 3, 4]),
        ("$.features[:100]", [1, 2, 3, 4, 5]),
        ("$.features[5:]", []),
        ("$.features.*", [1, 2, 3, 4, 5]),
        ("$.nested.*", [{"b": 1}, {"b": 2}]),
        ("$.nested[*].b", [1, 2]),
        ("$.rows[0:2].x", [1, 3]),
        ("$.rows[*]['x','y']", [{"x": 1, "y": 2}, {"x": 3, "y": 4}]),
        ("$.nested['a','c'].b", [1, 2]),
    ],
)
def test_a_path_selects(expression, expected):
    assert selected(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("[1:4]", [2, 3, 4, 5]), ("[:3]", [1, 2, 3, 4]), ("[:-1]", [1, 2, 3, 4, 5])],
)
def test_ends_of_ranges_can_be_inclusive(expression, expected):
    assert selected("$.features" + expression, inclusive=True) == expected


@pytest.mark.parametrize("expression", ["$[0:2,246:]", "$[0,5:]", "$.a[1:2,3]"])
def test_ranges_stand_alone(expression):
    with pytest.raises(MixedRanges) as raised:
        parse_path(expression)
    assert raised.value.brackets == expression[expression.index("[") :]


def test_mixed_ranges_can_be_allowed():
    assert selected("$.features[0,3:]", mixed=True) == [1, 4, 5]
    assert selected("$.features[0:2,-1]", mixed=True) == [1, 2, 5]


@pytest.mark.parametrize(
    "expression",
    [
        *("", "id", "$id", "$.", "$..id", "$$", "$.a b", "$[?(@.a)]"),
        *("$[", "$[]", "$[a]", "$[1,]", "$[1:2:3]", "$[--1]"),
        *("$['a'", "$['a',]", "$['a',1]", "$['a.b']", "$['']", "$['a']x"),
    ],
)
def test_what_is_no_path_is_refused(expression):
    with pytest.raises(PathSyntaxError):
        parse_path(expression)


@pytest.mark.parametrize(
    ("expression", "copies"),
    [
        ("$" + "[0,0,0]" * 8, 6561),
        ("$[" + ",".join("0" * 17) + "]", 17),
        ("$[0,0,-1]" + "[-1,-1,0]" * 2, 27),
        ("$[0:,0:,0][0:,0:,0][0,-1]", 18),
    ],
)
def test_copies_of_one_value_are_bounded(expression, copies):
    with pytest.raises(PathSyntaxError, match=f"It may select one value {copies} times"):
        parse_path(expression, mixed=True)


@pytest.mark.parametrize("expression", ["$[0,0,0,0][0,0][-1,-1]", "$" + "[0,1,2,3]" * 3 + "[0:2]"])
def test_some_copies_are_allowed(expression):
    parse_path(expression)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("$.absent", 'it has no "absent"'),
        ("$.id.more", 'it has no "more"'),
        ("$.features.id", 'it has no "id"'),
        ("$['x','y']", 'it has none of "x", "y"'),
        ("$.features[5]", r"it has no element \[5\]"),
        ("$.features[-6]", r"it has no element \[-6\]"),
        ("$.features[0,9]", r"it has no element \[9\]"),
        ("$.nested[0]", r"it has no element \[0\]"),
        ("$.nested[0:1]", "it is no array where the filter has indexes"),
        ("$.id.*", "it is no array or object"),
        ("$.nested.*.x", 'it has no "x"'),
    ],
)
def test_what_a_value_lacks_is_named(expression, reason):
    with pytest.raises(PartMissing, match=reason):
        selected(expression)


def test_text_is_no_array():
    with pytest.raises(PartMissing):
        selected("$[0]", "text")
