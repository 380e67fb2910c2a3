"""References between resources: what comes behind what."""

from support.templates import worked_out


def test_each_comes_behind_what_it_needs():
    resources, _ = worked_out("""
Resources:
  A: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Sub "${B.TopicName} ${!D}"}}
  B: {Type: AWS::SNS::Topic, DependsOn: D}
  C: {Type: AWS::SNS::Topic, Properties: {DisplayName: !Join ["", [!GetAtt [A, TopicName]]]}}
  D: {Type: AWS::SNS::Topic}
""")
    assert list(resources) == ["D", "B", "A", "C"]
