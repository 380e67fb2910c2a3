"""Intrinsic functions: what they come to, and what they refuse."""

import pytest

from support.templates import DECLARED, doubled, value_of, value_refusal


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("!Ref P", "p"),
        ("!Ref N", "1.50"),
        ("!Select [1, !Ref L]", "b"),
        ("!Join ['-', !Ref L]", "a-b-c"),
        ("!Join ['', [!Ref P, 1, true, 1.10]]", "p1true1.10"),
        ("!Select ['0', !Split [':', 'x:y']]", "x"),
        ("!Sub '${P}-${AWS::Region}-${!P}-$${P}'", "p-eu-west-1-${P}-$p"),
        ("!Sub ['${A}${P}', {A: !Ref N}]", "1.50p"),
        ("!Sub '${T.TopicName}'", "stack-T-3dcc1a2e"),
        ("!FindInMap [M, one, x]", "1"),
        ("!FindInMap [M, !Ref P, x]", "mapped"),
        ("!Select [1, !FindInMap [M, one, y]]", "r"),
        ("!If [Yes, a, b]", "a"),
        ("!If [No, a, b]", "b"),
        ("!If [Both, a, !If [Either, c, d]]", "c"),
        ("!Base64 hi", "aGk="),
        ("!Ref AWS::AccountId", "123456789012"),
        ("!Ref AWS::StackName", "stack"),
        ("!Ref AWS::Partition", "aws"),
        ("!Ref AWS::URLSuffix", "amazonaws.com"),
        ("!GetAtt [T, TopicName]", "stack-T-3dcc1a2e"),
    ],
)
def test_functions(expression, value):
    found = value_of(expression, DECLARED)
    if "TopicName" in expression:
        assert found.startswith("stack-T-")
        assert len(found) == len(value)
    else:
        assert found == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("!ImportValue x", "Fn::ImportValue is not implemented by Sagehen"),
        ("!GetAZs x", "Fn::GetAZs is not implemented"),
        ("{'Fn::Nope': x}", "Fn::Nope is not implemented"),
        ("!Ref [x]", "every Ref object must have a single String value"),
        ("!Ref Nobody", "Unresolved resource dependencies [Nobody] in the Outputs block"),
        ("!If [Yes, a, !Ref Nobody]", "Unresolved resource dependencies [Nobody]"),
        ("!GetAtt Nobody.Arn", "Unresolved resource dependencies [Nobody]"),
        ("!Sub '${Nobody}'", "Unresolved resource dependencies [Nobody]"),
        ("!GetAtt T.Nothing", "does not support attribute type Nothing in Fn::GetAtt"),
        ("!GetAtt T", "every Fn::GetAtt object requires two non-empty parameters"),
        ("!Sub [a]", "One or more Fn::Sub intrinsic functions"),
        ("!Sub '${L}'", "Fn::Sub needs a string"),
        ("!Join [a]", "every Fn::Join object requires a list of 2 parameters"),
        ("!Join ['', x]", "Fn::Join needs a list"),
        ("!Select [3, !Ref L]", "Fn::Select cannot select nonexistent value at index 3"),
        ("!Select [-1, !Ref L]", "cannot select nonexistent value at index -1"),
        ("!Split ['', x]", "the delimiter of Fn::Split"),
        ("!FindInMap [M, one, z]", "Unable to get mapping for M::one::z"),
        ("!If [Nope, a, b]", "unresolved condition dependency Nope"),
        ("!Ref L", "Every Outputs member must be a string"),
        ("!Ref AWS::NoValue", "Every Outputs member must be a string"),
        ("{a: {'Fn::Sub': x, b: 1}}", "a function must be the only key"),
        (doubled("x", 30), "the result of Fn::Sub is over 1048576 characters"),
        (f"!Join ['', [{doubled('x', 20)}, b]]", "the result of Fn::Join is over 1048576"),
    ],
)
def test_functions_that_fail(expression, why):
    assert why in value_refusal(expression, DECLARED)
