"""Templates worked out: sections, parameters, conditions, functions, references."""

import io

import msgspec
import pytest
from rich.console import Console

from sagehen.apply.client import Destination
from sagehen.apply.plan import Difference, make_plan
from sagehen.apply.resources import KINDS
from sagehen.apply.show import render_outputs, render_plan
from sagehen.apply.stack import StackContent
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.parameters import read_assignments
from sagehen.apply.template.reading import read_text
from sagehen.apply.template.template import read_template
from sagehen.base.errors import Invalid
from support.apply_world import World

TOPIC = "AWS::SNS::Topic"


def worked_out(text, **given):
    """The resources by logical id, and the outputs."""
    template = read_template(read_text(text, "t.yaml"), KINDS)
    resolver = Resolver(template, given, "stack", Destination(World()), StackContent())
    resources = {one.logical_id: one for one in resolver.resolve_all()}
    return resources, resolver.outputs()


def value_of(expression, more="", **given):
    """What an expression of an output comes to."""
    text = f"{more}\nResources: {{T: {{Type: {TOPIC}}}}}\nOutputs: {{V: {{Value: {expression}}}}}"
    return worked_out(text, **given)[1]["V"]


def refusal(text, **given):
    with pytest.raises(Invalid) as caught:
        worked_out(text, **given)
    return str(caught.value)


def value_refusal(expression, more="", **given):
    with pytest.raises(Invalid) as caught:
        value_of(expression, more, **given)
    return str(caught.value)


def doubled(text, times):
    """A few lines that stand for 2 ** `times` texts."""
    for _ in range(times):
        text = "{'Fn::Sub': ['${a}${a}', {a: " + text + "}]}"
    return text


DECLARED = """
Parameters:
  P: {Type: String, Default: p}
  L: {Type: CommaDelimitedList, Default: "a, b,c"}
  N: {Type: Number, Default: 1.50}
Mappings:
  M: {one: {x: 1, y: [q, r]}, p: {x: mapped}}
Conditions:
  Yes: !Equals [!Ref P, p]
  No: !Not [!Condition Yes]
  Both: !And [!Condition Yes, !Condition No]
  Either: !Or [!Condition Both, !Equals [!FindInMap [M, one, x], "1"]]
"""


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
        (doubled("x", 30), "what Fn::Sub makes is over 1048576 characters"),
        (f"!Join ['', [{doubled('x', 20)}, b]]", "what Fn::Join makes is over 1048576"),
    ],
)
def test_functions_that_fail(expression, why):
    assert why in value_refusal(expression, DECLARED)


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
        ("{Type: Number, MaxValue: x}", {"X": "1.5"}, "value of /Parameters/X is no number: x"),
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


@pytest.mark.parametrize(
    "expression",
    [
        "!Ref S",
        "!Base64 {Ref: S}",
        "!Base64 {'Fn::Sub': 'user:${S}'}",
        "!Sub ['${a}', {a: !Base64 {Ref: S}}]",
        "!Join ['-', [a, !Base64 {Ref: S}]]",
        "!Select [0, !Split ['s', !Ref S]]",
        "!Select [1, !Ref L]",
    ],
)
def test_what_is_made_of_a_secret_is_hidden(expression):
    text = f"""
Parameters:
  S: {{Type: String, NoEcho: true, Default: hush}}
  L: {{Type: CommaDelimitedList, NoEcho: true, Default: "a,hush"}}
Resources:
  T:
    Type: {TOPIC}
    Properties: {{DisplayName: {expression}, Tags: [{{Key: k, Value: shown}}]}}
Outputs: {{V: {{Value: {expression}}}, W: {{Value: shown}}}}
"""
    template = read_template(read_text(text, "t.yaml"), KINDS)
    resolver = Resolver(template, {}, "stack", Destination(World()), StackContent())
    (topic,) = resolver.resolve_all()
    assert topic.hidden == ("DisplayName",)
    assert resolver.hidden_outputs() == {"V"}
    plan = make_plan([topic], StackContent(), {})
    change = Difference("DisplayName", None, topic.properties["DisplayName"])
    step = msgspec.structs.replace(plan.steps[0], changes=(change,))
    console = Console(file=io.StringIO())
    console.print(render_plan(msgspec.structs.replace(plan, steps=(step,)), "stack"))
    console.print(render_outputs(resolver.outputs(), {}, resolver.hidden_outputs()))
    printed = console.file.getvalue()
    assert "DisplayName: (none) -> ****\n" in printed
    assert "  V  ****  \n  W  shown" in printed
    # Nor is it anything but a text to those that write and send it.
    assert type(resolver.outputs()["V"]) is type(topic.properties["DisplayName"]) is str


def test_parameters_are_given_by_name():
    assert read_assignments(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    for bad in (["A"], ["=1"], ["A=1", "A=2"]):
        with pytest.raises(Invalid):
            read_assignments(bad)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Resources: {}", "At least one Resources member must be defined"),
        ("Foo: 1\nResources: {T: {Type: x}}", "Invalid template property or properties [Foo]"),
        ("AWSTemplateFormatVersion: 2011-01-01\nResources: {T: {Type: x}}", "unsupported value"),
        ("Transform: x\nResources: {T: {Type: x}}", "Transform of a template is not implemented"),
        ("Resources: [1]", "Resources must be a mapping"),
        ("Resources: {a-b: {Type: x}}", "name a-b is non alphanumeric"),
        ("Resources: {T: 1}", "resource definition is malformed"),
        ("Resources: {T: {}}", "Every Resources object must contain a Type member"),
        (
            "Resources: {T: {Type: AWS::EC2::VPC}, U: {Type: AWS::SNS::Topic}}",
            "Unrecognized resource types: [AWS::EC2::VPC]",
        ),
        ("Resources: {T: {Type: AWS::SNS::Topic, Foo: 1}}", "resource property 'Foo'"),
        ("Resources: {T: {Type: AWS::SNS::Topic, DependsOn: [1]}}", "DependsOn must be"),
        ("Resources: {T: {Type: AWS::SNS::Topic, DependsOn: X}}", "dependencies [X]"),
        ("Resources: {T: {Type: AWS::SNS::Topic, Condition: X}}", "condition X is not defined"),
        (
            "Resources: {T: {Type: AWS::SNS::Topic, DeletionPolicy: Snapshot}}",
            "Unrecognized DeletionPolicy Snapshot",
        ),
        ("Resources: {T: {Type: AWS::SNS::Topic, Properties: [1]}}", "must be an object"),
        (
            "Mappings: {M: {a: 1}}\nResources: {T: {Type: AWS::SNS::Topic}}",
            "member must be a map of maps",
        ),
        (
            "Conditions: {C: x}\nResources: {T: {Type: AWS::SNS::Topic}}",
            "Conditions can only be boolean operations",
        ),
        (
            "Conditions: {C: !Condition D, D: !Condition C}\n"
            "Resources: {T: {Type: AWS::SNS::Topic}}",
            "Circular dependency between conditions: [C, D]",
        ),
        (
            "Conditions: {C: !Equals [!Ref T, x]}\nResources: {T: {Type: AWS::SNS::Topic}}",
            "Cannot reference resources in the Conditions block",
        ),
        (
            "Conditions: {C: !Not [1, 2]}\nResources: {T: {Type: AWS::SNS::Topic}}",
            "every Fn::Not object requires a list",
        ),
        (
            "Resources:\n  A: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Ref B}}\n"
            "  B: {Type: AWS::SNS::Topic, DependsOn: A}",
            "Circular dependency between resources: [A, B]",
        ),
        (
            "Resources:\n  A: {Type: AWS::SNS::Topic, DependsOn: A}",
            "Circular dependency between resources: [A]",
        ),
        (
            "Conditions: {C: !Equals [a, b]}\nResources:\n"
            "  A: {Type: AWS::SNS::Topic, Condition: C}\n"
            "  B: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Ref A}}",
            "Unresolved resource dependencies [A] in the Resources block",
        ),
        (
            "Resources: {T: {Type: AWS::SNS::Topic, Properties: {Foo: 1}}}",
            "Properties validation failed for resource T (AWS::SNS::Topic) with message: #: "
            "extraneous key [Foo] is not permitted",
        ),
    ],
)
def test_templates_that_cannot_be(text, why):
    assert why in refusal(text)


def test_conditions_choose_resources_and_outputs():
    text = (
        DECLARED
        + """
Resources:
  A: {Type: AWS::SNS::Topic, Condition: Yes}
  B: {Type: AWS::SNS::Topic, Condition: No}
  C:
    Type: AWS::SNS::Topic
    DependsOn: [A, B]
    Properties:
      DisplayName: !If [Yes, !Ref A, !Ref B]
      KmsMasterKeyId: !If [No, x, !Ref AWS::NoValue]
Outputs:
  OfB: {Value: !Ref B, Condition: No}
  OfA: {Value: !GetAtt A.TopicName, Condition: Yes}
"""
    )
    resources, outputs = worked_out(text)
    assert list(resources) == ["A", "C"]
    assert resources["C"].needs == ("A",)
    assert resources["C"].properties == {"DisplayName": resources["A"].attributes["Ref"]}
    assert list(outputs) == ["OfA"]
    resources, outputs = worked_out(text, P="other")
    assert list(resources) == ["B", "C"]
    assert resources["C"].properties["KmsMasterKeyId"] == "x"


def test_each_comes_behind_what_it_needs():
    resources, _ = worked_out("""
Resources:
  A: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Sub "${B.TopicName} ${!D}"}}
  B: {Type: AWS::SNS::Topic, DependsOn: D}
  C: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Join ["", [!GetAtt [A, TopicName]]]}}
  D: {Type: AWS::SNS::Topic}
""")
    assert list(resources) == ["D", "B", "A", "C"]
