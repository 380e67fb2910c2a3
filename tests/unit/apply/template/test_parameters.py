"""Parameters: declared, given by name, and checked."""

import pytest

from sagehen.apply.template.parameters import read_assignments
from sagehen.base.errors import Invalid
from support.templates import value_of, value_refusal


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        ("{Type: String}", "a=b", "a=b"),
        ("{Type: String, Default: ''}", None, ""),
        ("{Type: String, Default: 12}", None, "12"),
        ("{Type: String, AllowedValues: [a, 1.0]}", "1.0", "1.0"),
        ("{Type: String, AllowedPattern: '[a-z]+'}", "abc", "abc"),
        ("{Type: String, MinLength: 1, MaxLength: '3'}", "abc", "abc"),
        ("{Type: Number, MinValue: 1, MaxValue: 2.5}", "2.5", "2.5"),
    ],
)
def test_parameters(declared, given, value):
    given = {} if given is None else {"X": given}
    assert value_of("!Ref X", f"Parameters: {{X: {declared}}}", **given) == value


@pytest.mark.parametrize(
    ("declared", "given", "why"),
    [
        ("{Type: String}", {}, "Parameters: [X] must have values"),
        ("{Type: String}", {"X": "a", "Y": "b"}, "Parameters: [Y] do not exist in the template"),
        ("{Type: String, AllowedValues: [a, b]}", {"X": "c"}, "must be one of AllowedValues: a, b"),
        ("{Type: String, AllowedPattern: '[a-z]'}", {"X": "ab"}, "must match pattern [a-z]"),
        ("{Type: String, AllowedPattern: '['}", {"X": "ab"}, "no regular expression"),
        ("{Type: String, MinLength: 2}", {"X": "a"}, "must contain at least 2 characters"),
        ("{Type: String, MaxLength: 2}", {"X": "abc"}, "must contain at most 2 characters"),
        ("{Type: Number}", {"X": "nan"}, "must be a number, not 'nan'"),
        ("{Type: Number, NoEcho: true}", {"X": "secret"}, "must be a number, not ****"),
        ("{Type: Number, MinValue: 1}", {"X": "0.5"}, "not less than 1"),
        ("{Type: Number, MaxValue: 1}", {"X": "1.5"}, "not greater than 1"),
        (
            "{Type: Number, MaxValue: x}",
            {"X": "1.5"},
            "value of /Parameters/X must be a number, not x",
        ),
        ("{Type: List<Number>}", {"X": "1, x"}, "must be a number"),
        ("{Type: AWS::SSM::Parameter::Value<String>}", {"X": "a"}, "Unrecognized parameter type"),
        ("{Type: String, Nope: 1}", {"X": "a"}, "[/Parameters/X] Object contains unknown field"),
        ("{Default: 1}", {}, "[/Parameters/X] Object missing required field `Type`"),
        (
            "{Type: Number, MinValue: 1, ConstraintDescription: is a count}",
            {"X": "0"},
            "Parameter 'X' is a count",
        ),
    ],
)
def test_parameters_that_cannot_be(declared, given, why):
    assert why in value_refusal("!Ref X", f"Parameters: {{X: {declared}}}", **given)


def test_parameters_are_given_by_name():
    assert read_assignments(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    for bad in (["A"], ["=1"], ["A=1", "A=2"]):
        with pytest.raises(Invalid):
            read_assignments(bad)
