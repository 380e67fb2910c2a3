"""`sagehen apply` and `sagehen delete` against a real server: made, changed, killed, taken away.

`APPLY_KILL_STEP=1 pytest tests/boto/test_apply.py` kills a run behind each of its requests.
"""

import json
import os
import signal
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session
from typer.testing import CliRunner

import sagehen.apply.run
from sagehen.apply.connect import connect
from sagehen.cli import app
from sagehen.errors import NotFound
from support.deploy import IMAGE, ROLE, loads_when
from support.server import SAGEHEN, eventually

STEP = int(os.environ.get("APPLY_KILL_STEP", "7"))
DOUBLE_OF = """
import os

def model_fn(model_dir):
    return float(os.environ["FACTOR"])

def predict_fn(data, model):
    return data * model
"""


class Stack:
    """One stack, its template and its runs."""

    def __init__(self, server, folder: Path) -> None:
        self.server = server
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.file = folder / f"{self.name}.yaml"

    def write(self, template) -> None:
        self.file.write_text(template if isinstance(template, str) else yaml.safe_dump(template))

    def run(self, verb, *options):
        """Exit status and what was printed."""
        line = [verb, str(self.file), "--home", str(self.server.home), *map(str, options)]
        result = CliRunner().invoke(app, line)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return result.exit_code, result.output

    def apply(self, template=None, *options, status=0):
        if template is not None:
            self.write(template)
        found, printed = self.run("apply", *options)
        assert found == status, printed
        return printed

    def delete(self, status=0):
        found, printed = self.run("delete")
        assert found == status, printed
        return printed

    def start(self, template, *options):
        """A run in a process of its own."""
        self.write(template)
        return subprocess.Popen(
            [SAGEHEN, "apply", str(self.file), *options],
            env=self.server.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def stack(server, tmp_path):
    stack = Stack(server, tmp_path)
    yield stack
    stack.run("delete")


@pytest.fixture(scope="module")
def clients(server):
    return {name: server.client(name) for name in ("sagemaker", "s3", "sns", "sqs")}


def resource(kind, properties=None, **more):
    return {"Type": f"AWS::{kind}", "Properties": properties or {}, **more}


def served(url, factor=2, name=None):
    """A template of an endpoint."""
    container = {"Image": IMAGE, "ModelDataUrl": url, "Environment": {"FACTOR": factor}}
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    config = {"EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]}}
    model = {"ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    return {
        "Resources": {
            "Endpoint": resource(
                "SageMaker::Endpoint", config | ({"EndpointName": name} if name else {})
            ),
            "Config": resource("SageMaker::EndpointConfig", {"ProductionVariants": [variant]}),
            "Model": resource("SageMaker::Model", model),
        },
        "Outputs": {"Name": {"Value": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}},
    }


def names(sagemaker, stack):
    """Of the stack's models and configs."""
    models = sagemaker.list_models(NameContains=stack.name)["Models"]
    configs = sagemaker.list_endpoint_configs(NameContains=stack.name)["EndpointConfigs"]
    return [one["ModelName"] for one in models] + [one["EndpointConfigName"] for one in configs]


def test_an_endpoint_is_made_changed_and_taken_away(stack, deploy, clients):
    url = deploy.upload("apply/model.tar.gz", DOUBLE_OF)
    name = f"{stack.name}-serves"
    printed = stack.apply(served(url, 2, name))
    assert "Plan: 3 to create." in printed
    assert f"Name  {name}" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"

    printed = stack.apply()
    assert "Nothing to do." in printed
    assert "Creating" not in printed
    stack.apply(None, "--dry-run")

    before = names(clients["sagemaker"], stack)
    changed = served(url, 3, name)
    printed = stack.apply(changed, "--dry-run", status=3)
    assert 'PrimaryContainer.Environment.FACTOR: "2" -> "3"' in printed
    assert "-/+ AWS::SageMaker::Model Model" in printed
    assert f"~ AWS::SageMaker::Endpoint Endpoint ({name})" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"
    stack.apply(changed)
    assert deploy.invoke(name) == "[3.0, 6.0]"
    after = names(clients["sagemaker"], stack)
    assert len(after) == 2
    assert not set(before) & set(after)

    printed = stack.delete()
    deleted = [line.split()[1] for line in printed.splitlines() if line.startswith("Deleting")]
    assert deleted == [
        f"AWS::SageMaker::{kind}" for kind in ("Endpoint", "EndpointConfig", "Model")
    ]
    assert names(clients["sagemaker"], stack) == []
    with pytest.raises(ClientError, match="Could not find endpoint"):
        deploy.status(name)
    assert "There is no stack" in stack.delete()


def test_what_fails_is_told_and_what_served_serves_on(stack, deploy):
    good = deploy.upload("apply/model.tar.gz", DOUBLE_OF)
    bad = deploy.upload("apply/bad.tar.gz", "def model_fn(model_dir):\n    raise OSError('no way')")
    name = f"{stack.name}-serves"
    printed = stack.apply(served(bad, 2, name), status=1)
    assert "failed: " in printed
    assert "sagehen:" in printed
    assert deploy.status(name) == "Failed"

    printed = stack.apply(served(good, 2, name))
    assert "which failed" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"

    printed = stack.apply(served(bad, 2, name), status=1)
    assert "The update of AWS::SageMaker::Endpoint Endpoint" in printed
    assert "it goes on as it was" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"
    stack.apply(served(good, 2, name))
    assert deploy.invoke(name) == "[2.0, 4.0]"
    assert len(names(deploy.sagemaker, stack)) == 2


def test_a_run_that_is_killed_is_gone_on_with_and_two_do_not_cross(stack, deploy, tmp_path):
    gate = tmp_path / "gate"
    url = deploy.upload(f"apply/{stack.name}.tar.gz", loads_when(gate, 5.0))
    name = f"{stack.name}-serves"
    run = stack.start(served(url, 1, name))
    eventually(lambda: stack.name in str(deploy.sagemaker.list_endpoints(NameContains=name)))

    printed = stack.apply(served(url, 2, name), status=1)
    assert "works on the stack" in printed
    assert "(process " in printed

    run.send_signal(signal.SIGKILL)
    run.communicate()
    second = stack.start(served(url, 1, name))
    eventually(lambda: "waited for" in second.stdout.readline())
    eventually(lambda: second.stdout.readline().startswith("Waiting for AWS::SageMaker::Endpoint"))
    second.send_signal(signal.SIGINT)
    printed, _ = second.communicate(timeout=60)
    assert second.returncode == 130, printed
    assert "is still changing. Run the same again to go on." in printed
    gate.touch()
    stack.apply(served(url, 1, name))
    assert deploy.invoke(name) == "[5.0, 10.0]"
    assert len(names(deploy.sagemaker, stack)) == 2


def test_what_was_half_made_when_it_was_refused_is_the_stacks(stack):
    def topic(protocol):
        subscription = {"Protocol": protocol, "Endpoint": "http://127.0.0.1:9/x"}
        properties = {"Subscription": [subscription]}
        return {"Resources": {"T": {"Type": "AWS::SNS::Topic", "Properties": properties}}}

    assert "does not support this protocol" in stack.apply(topic("ftp"), status=1)
    stack.apply(topic("http"))
    assert "Nothing to do" in stack.apply()
    stack.delete()
    assert stack.apply(topic("ftp"), status=1)
    stack.delete()
    stack.apply(topic("http"))
    stack.delete()


def test_before_the_first_step_a_signal_ends_a_run_at_once(stack):
    os.mkfifo(stack.file)
    run = subprocess.Popen(
        [SAGEHEN, "apply", str(stack.file)],
        env=stack.server.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    eventually(lambda: opened_for_writing(stack.file))
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode != 0


def opened_for_writing(fifo):
    """Whether somebody reads it; whoever does reads on."""
    try:
        HELD.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


HELD = []


def many(stack, version):
    """Everything that is made quickly."""
    topic = {
        "DisplayName": f"topic {version}",
        "Subscription": [{"Protocol": "http", "Endpoint": f"http://127.0.0.1:9/{version}"}],
        "Tags": [{"Key": "version", "Value": str(version)}],
    }
    queue = {"VisibilityTimeout": 30 + version}
    to_queue = {
        "TopicArn": {"Ref": "Topic"},
        "Protocol": "sqs",
        "Endpoint": {"Fn::GetAtt": ["Queue", "Arn"]},
        "FilterPolicy": {"version": [version]},
    }
    container = {"Image": IMAGE, "ModelDataUrl": "s3://models/apply/model.tar.gz"}
    model = {
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": {**container, "Environment": {"V": version}},
    }
    return {
        "Resources": {
            "Topic": resource("SNS::Topic", topic),
            "Queue": resource("SQS::Queue", queue),
            "ToQueue": resource("SNS::Subscription", to_queue),
            "Model": resource("SageMaker::Model", model),
            f"Bucket{version}": resource("S3::Bucket", {"BucketName": f"{stack.name}-{version}"}),
        }
    }


def world(clients, stack):
    """What of `many` is there."""
    sns = clients["sns"]
    arns = [one["TopicArn"] for one in sns.list_topics()["Topics"] if stack.name in str(one)]
    listed = [sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"] for arn in arns]
    urls = clients["sqs"].list_queues(QueueNamePrefix=stack.name).get("QueueUrls", [])
    buckets = clients["s3"].list_buckets()["Buckets"]
    return {
        "topics": [
            sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] for arn in arns
        ],
        "subscriptions": sorted(one["Endpoint"].rpartition(":")[2] for of in listed for one in of),
        "queues": [
            clients["sqs"].get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"][
                "VisibilityTimeout"
            ]
            for url in urls
        ],
        "models": [
            clients["sagemaker"].describe_model(ModelName=name)["PrimaryContainer"]["Environment"]
            for name in names(clients["sagemaker"], stack)
        ],
        "buckets": [one["Name"] for one in buckets if one["Name"].startswith(stack.name)],
    }


def wanted(clients, stack, version):
    urls = clients["sqs"].list_queues(QueueNamePrefix=stack.name)["QueueUrls"]
    queue = [url.rpartition("/")[2] for url in urls]
    return {
        "topics": [f"topic {version}"],
        "subscriptions": sorted([*queue, f"9/{version}"]),
        "queues": [str(30 + version)],
        "models": [{"V": str(version)}],
        "buckets": [f"{stack.name}-{version}"],
    }


def reads_only(request):
    body = request.body if isinstance(request.body, str) else (request.body or b"").decode()
    said = str(request.headers.get("X-Amz-Target", "")) + body
    reads = ("Describe", "Action=Get", "Action=List", ".Get", ".List")
    return request.method in ("GET", "HEAD") or any(one in said for one in reads)


class Killed(BaseException):
    """The end of a run, wherever it is."""


def test_a_run_may_be_killed_behind_any_request(stack, deploy, clients, monkeypatch):
    deploy.upload("apply/model.tar.gz", DOUBLE_OF)
    send, left = URLLib3Session.send, [10**9]

    def counted(session, request):
        if left[0] == 0:
            raise Killed  # Whoever is dead does nothing more.
        answer = send(session, request)
        left[0] -= not reads_only(request)
        if left[0] == 0:
            raise Killed
        return answer

    stack.apply(many(stack, 1))
    assert world(clients, stack) == wanted(clients, stack, 1)
    monkeypatch.setattr(URLLib3Session, "send", counted)
    aws = connect(stack.server.home, None)
    monkeypatch.setattr(sagehen.apply.run, "connect", lambda *_: aws)  # To make clients takes long.
    # Some requests of each way there: tests/unit/apply goes through all of them.
    for count in range(1, 100, STEP):
        version = 1 + count % 2
        stack.write(many(stack, version))
        left[0] = count
        with suppress(Killed):
            stack.apply()
        killed, left[0] = left[0] == 0, 10**9
        stack.apply()
        assert world(clients, stack) == wanted(clients, stack, version), (
            f"killed behind request {count}"
        )
        if not killed:
            break
    assert "Nothing to do." in stack.apply()
    assert 20 < count < 100 - STEP


def test_others_and_the_template(stack, clients):
    """What others delete is made again, what they change is mended, what is theirs is theirs."""
    sns, bucket = clients["sns"], f"{stack.name}-data"
    template = {
        "Resources": {
            "Topic": resource("SNS::Topic", {"DisplayName": "ours"}),
            "Bucket": resource("S3::Bucket", {"BucketName": bucket}),
            "Named": resource("SNS::Topic", {"TopicName": f"named-{stack.name}"}),
            "Queue": resource("SQS::Queue", {"QueueName": f"{stack.name}-queue"}),
        },
        "Outputs": {"Arn": {"Value": {"Ref": "Topic"}}},
    }
    clients["s3"].create_bucket(Bucket=bucket)
    printed = stack.apply(template, status=1)
    assert f"identifier '{bucket}' already exists, and is not the stack's" in printed
    assert stack.name not in str(sns.list_topics())
    clients["sqs"].create_queue(QueueName=f"{stack.name}-queue")
    stack.apply(template, "--adopt")
    assert "changed by somebody else" not in stack.apply()

    arn = next(
        one["TopicArn"] for one in sns.list_topics()["Topics"] if f":{stack.name}" in str(one)
    )
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="theirs")
    printed = stack.apply()
    assert 'DisplayName: "theirs" -> "ours"   (changed by somebody else)' in printed
    assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == "ours"
    sns.delete_topic(TopicArn=arn)
    assert "it is gone" in stack.apply()
    assert arn in str(sns.list_topics())

    clients["s3"].put_object(Bucket=bucket, Key="k", Body=b"precious")
    printed = stack.delete()
    assert f"The bucket {bucket} is not empty, and stays as it is." in printed
    assert clients["s3"].get_object(Bucket=bucket, Key="k")["Body"].read() == b"precious"
    assert arn not in str(sns.list_topics())
    clients["s3"].delete_object(Bucket=bucket, Key="k")
    stack.apply(template, "--adopt")


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
        ({"Resources": {"A": resource("SNS::Topic", {"X": 1})}}, "extraneous key [X]"),
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
    assert "Something is deleted or replaced. Go on? [y/N]" in printed
    count = str(clients["sns"].list_topics()).count(f":{stack.name}-")
    assert count == 2
    assert "Go on?" not in stack.apply(template, "--yes")
    assert str(clients["sns"].list_topics()).count(f":{stack.name}-") == 1
    assert "Go on?" not in stack.apply(template | {"Outputs": {"O": {"Value": "x"}}})
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
