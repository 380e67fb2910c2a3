"""What templates say: parameters, conditions, resources of our own, and what cannot be."""

import json

import pytest
from typer.testing import CliRunner

import sagehen.apply.run
from sagehen.app.cli import app
from sagehen.apply.client import connect
from sagehen.base.errors import NotFound
from support.stacks import resource, served


def test_parameters_conditions_and_json(stack, clients):
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": {
            "Secret": {"Type": "String", "NoEcho": True, "Default": "hush"},
            "Hook": {"Type": "String", "Default": ""},
        },
        "Conditions": {"HasHook": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Hook"}, ""]}]}},
        "Resources": {
            "Topic": resource("SNS::Topic", {"DisplayName": {"Fn::Sub": "a ${Secret}"}}),
            "ToHook": resource(
                "SNS::Subscription",
                {"TopicArn": {"Ref": "Topic"}, "Protocol": "http", "Endpoint": {"Ref": "Hook"}},
                Condition="HasHook",
            ),
        },
        "Outputs": {"Said": {"Value": {"Fn::Sub": "${Secret} ${AWS::AccountId}"}}},
    }
    printed = stack.apply(json.dumps(template, indent=1))
    assert "Said  ****" in printed
    assert "Said  **** 0" not in printed
    assert "ToHook" not in printed
    printed = stack.apply(None, "-p", "Hook=http://127.0.0.1:9/", "-p", "Secret=other")
    assert "+ AWS::SNS::Subscription ToHook (unnamed)" in printed
    assert "other" not in printed
    assert "hush" not in printed
    assert "DisplayName: **** -> ****" in printed
    listed = clients["sns"].list_subscriptions()["Subscriptions"]
    assert [one["Endpoint"] for one in listed if stack.name in one["TopicArn"]] == [
        "http://127.0.0.1:9/"
    ]
    printed = stack.apply(None, "-p", "Secret=other")
    assert "Deleting AWS::SNS::Subscription ToHook (arn:" in printed
    listed = clients["sns"].list_subscriptions()["Subscriptions"]
    assert not [one for one in listed if stack.name in one["TopicArn"]]


def test_tags_of_a_bucket_change_in_place(stack, clients):
    """AWS CDK's `Tags.of(app).add` tags each bucket, too."""

    def template(**tags):
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {"Resources": {"Data": resource("S3::Bucket", {"BucketName": data, "Tags": listed})}}

    def tags():
        listed = clients["s3"].get_bucket_tagging(Bucket=data)["TagSet"]
        return {tag["Key"]: tag["Value"] for tag in listed}

    data = f"{stack.name}-data"
    stack.apply(template(team="ml", stage="test"))
    assert tags() == {"team": "ml", "stage": "test"}
    assert "Nothing to do." in stack.apply()
    foreign = [{"Key": "team", "Value": "ml"}, {"Key": "cost", "Value": "7"}]
    clients["s3"].put_bucket_tagging(Bucket=data, Tagging={"TagSet": foreign})
    stack.apply(template(team="web"))
    assert tags() == {"team": "web", "cost": "7"}
    clients["s3"].delete_bucket_tagging(Bucket=data)
    stack.apply(template(team="web"))
    assert tags() == {"team": "web"}


def test_an_inference_service_and_a_rule(stack, server, clients):
    aws, stage = connect(server.home, None), stack.name
    data, topic = f"{stage}-data", f"{stage}-topic"

    def template(limit, *ids):
        service = {
            "Stage": stage,
            "S3Bucket": {"Ref": "Data"},
            "WhiteList": "model_a, model_b",
            "Limit": limit,
            "RequireApiKey": False,
            "Topic": {"Fn::GetAtt": ["Topic", "TopicName"]},
        }
        pattern = {"source": ["aws.sagemaker"], "detail": {"TrainingJobStatus": ["Failed"]}}
        targets = [{"Id": one, "Arn": {"Ref": "Topic"}} for one in ids]
        return {
            "Resources": {
                "Service": {"Type": "Sagehen::InferenceService", "Properties": service},
                "Data": resource("S3::Bucket", {"BucketName": data}),
                "Topic": resource("SNS::Topic", {"TopicName": topic}),
                "Rule": resource("Events::Rule", {"EventPattern": pattern, "Targets": targets}),
            },
            "Outputs": {
                "Url": {"Value": {"Fn::GetAtt": ["Service", "Url"]}},
                "Rule": {"Value": {"Ref": "Rule"}},
            },
        }

    printed = stack.apply(template("2", "one", "two"))
    assert f"{server.url}/{stage}/inference" in printed
    found = aws.own("GET", "inference-services", stage)
    assert found["settings"]["limit"] == 2
    assert found["settings"]["white_list"] == ["model_a", "model_b"]
    assert found["topic_arn"].endswith(f":{topic}")
    assert "Nothing to do." in stack.apply()
    printed = stack.apply(template(3, "two", "three"))
    assert "Limit: 2 -> 3" in printed
    assert aws.own("GET", "inference-services", stage)["settings"]["limit"] == 3
    events, rule = server.client("events"), f"{stage}-Rule"
    rule = next(one["Name"] for one in events.list_rules()["Rules"] if one["Name"].startswith(rule))
    targets = events.list_targets_by_rule(Rule=rule)["Targets"]
    assert [one["Id"] for one in targets] == ["three", "two"]
    events.remove_targets(Rule=rule, Ids=["two"])
    assert "(changed by somebody else)" in stack.apply()
    assert len(events.list_targets_by_rule(Rule=rule)["Targets"]) == 2
    stack.delete()
    with pytest.raises(NotFound):
        aws.own("GET", "inference-services", stage)
    assert not [one for one in events.list_rules()["Rules"] if one["Name"] == rule]
    assert topic not in str(clients["sns"].list_topics())
    assert data not in [one["Name"] for one in clients["s3"].list_buckets()["Buckets"]]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("Resources:\n  A: {Type: AWS::SNS::Topic\n  B: 1", "line 3, column 4"),
        (
            {"Resources": {"A": resource("EC2::VPC")}},
            "Unrecognized resource types: [AWS::EC2::VPC]",
        ),
        (
            {"Resources": {"A": resource("SNS::Topic", {"X": 1})}},
            "extraneous key [X] is not permitted, or not implemented by Sagehen (docs/reference/",
        ),
        ("a: " + "x" * 10 * 2**20, "is over 1048576 bytes"),
        (served("s3://nowhere/model.tar.gz"), "Model: CreateModel: "),
    ],
    ids=["yaml", "type", "property", "10 MB", "refused"],
)
def test_what_cannot_be_leaves_nothing(stack, template, why):
    printed = stack.apply(template, status=1)
    assert why in printed.replace("\n", " ")
    assert "There is no stack" in stack.delete()


def test_whether_to_go_on_is_asked_at_a_terminal(stack, clients, monkeypatch):
    template = {"Resources": {"A": resource("SNS::Topic"), "B": resource("SNS::Topic")}}
    stack.apply(template)
    del template["Resources"]["B"]
    monkeypatch.setattr(sagehen.apply.run, "at_a_terminal", lambda: True)
    printed = stack.apply(template, status=1)
    assert "Resources will be deleted or replaced. Continue? [y/N]" in printed
    count = str(clients["sns"].list_topics()).count(f":{stack.name}-")
    assert count == 2
    assert "Continue?" not in stack.apply(template, "--yes")
    assert str(clients["sns"].list_topics()).count(f":{stack.name}-") == 1
    assert "Continue?" not in stack.apply(template | {"Outputs": {"O": {"Value": "x"}}})
    monkeypatch.undo()


def test_where_no_server_is(tmp_path, stack):
    stack.write({"Resources": {"A": resource("SNS::Topic")}})
    line = ["apply", str(stack.file), "--home", str(tmp_path)]
    result = CliRunner().invoke(app, line)
    assert (result.exit_code, "sagehen up" in result.output) == (1, True)
    line = ["apply", str(tmp_path / "my_stack.yaml")]
    (tmp_path / "my_stack.yaml").write_text(stack.file.read_text())
    result = CliRunner().invoke(app, line)
    assert "'my_stack' cannot be the name of a stack" in result.output
