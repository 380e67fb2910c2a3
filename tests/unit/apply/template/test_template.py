"""Templates worked out: sections, parameters, conditions, functions, references."""

import pytest

from support.templates import DECLARED, refusal, worked_out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Resources: {}", "At least one Resources member must be defined"),
        ("Foo: 1\nResources: {T: {Type: x}}", "Invalid template property or properties [Foo]"),
        ("AWSTemplateFormatVersion: 2011-01-01\nResources: {T: {Type: x}}", "unsupported value"),
        ("Transform: x\nResources: {T: {Type: x}}", "Transform of a template is not implemented"),
        (
            "Rules: {CheckBootstrapVersion: {}, Mine: {}}\nResources: {T: {Type: x}}",
            "Rules of a template is not implemented",
        ),
        (
            "Parameters: {P: {Type: 'AWS::SSM::Parameter::Value<String>', Default: /p}}\n"
            "Resources: {T: {Type: AWS::SNS::Topic}}",
            "Unrecognized parameter type: AWS::SSM::Parameter::Value<String> (/Parameters/P)",
        ),
        ("Resources: {T: {Type: AWS::CDK::Metadata}}", "At least one Resources member"),
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
