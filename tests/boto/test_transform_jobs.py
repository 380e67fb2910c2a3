"""Transform jobs, by a real boto3 client of a real server."""

import io
import json
import tarfile
import uuid

import pytest
from botocore.exceptions import ClientError, WaiterError

from support.cli import run_command
from support.deploy import IMAGE, ROLE
from support.frameworks import xgboost
from support.server import eventually

XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
ROWS = [[number / 10, (number * 7 % 100) / 10] for number in range(4000)]
UPPER = """
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    if b"refuse" in data:
        raise ValueError("a row is bad")
    return data.upper(), "text/csv"
"""
WAITS = """
import time

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    time.sleep(0.2)
    return data, "text/csv"
"""


class Transforms:
    """`run(name, {key: text}, Member=…)` is the description of a job that has ended."""

    def __init__(self, deploy):
        self.deploy = deploy
        self.sagemaker, self.s3 = deploy.sagemaker, deploy.s3
        for bucket in ("batch-in", "batch-out"):
            self.s3.create_bucket(Bucket=bucket)

    def start(self, model, objects, split="Line", **members):
        name = f"t-{uuid.uuid4().hex[:12]}"
        for key, body in objects.items():
            self.s3.put_object(Bucket="batch-in", Key=f"{name}/{key}", Body=body)
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://batch-in/{name}/"}
        given = {
            "ModelName": model,
            "TransformInput": {
                "DataSource": {"S3DataSource": source},
                "ContentType": "text/csv",
                "SplitType": split,
            },
            "TransformOutput": {
                "S3OutputPath": f"s3://batch-out/{name}",
                "Accept": "text/csv",
                "AssembleWith": "Line",
            },
            "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
            **members,
        }
        self.sagemaker.create_transform_job(TransformJobName=name, **given)
        return name

    def run(self, *given, **members):
        name = self.start(*given, **members)
        eventually(lambda: self.describe(name)["TransformJobStatus"] in ENDED)
        return self.describe(name)

    def describe(self, name):
        return self.sagemaker.describe_transform_job(TransformJobName=name)

    def outputs(self, name):
        listed = self.s3.list_objects_v2(Bucket="batch-out", Prefix=f"{name}/")
        keys = [entry["Key"] for entry in listed.get("Contents", [])]
        read = {key: self.s3.get_object(Bucket="batch-out", Key=key)["Body"].read() for key in keys}
        return {key.removeprefix(f"{name}/"): body.decode() for key, body in read.items()}


ENDED = ("Completed", "Failed", "Stopped")


@pytest.fixture(scope="module")
def transforms(deploy):
    return Transforms(deploy)


@pytest.fixture(scope="module")
def upper(deploy):
    deploy.model("batch-upper", UPPER)
    return "batch-upper"


@pytest.fixture(scope="module")
def booster():
    data = xgboost.DMatrix(ROWS[:500], [sum(row) for row in ROWS[:500]], nthread=1)
    return xgboost.train({"max_depth": 3, "nthread": 1, "verbosity": 0}, data, 10)


@pytest.fixture(scope="module")
def houses(deploy, booster):
    """A model of XGBoost's own image."""
    packed = io.BytesIO()
    content = bytes(booster.save_raw("ubj"))
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("xgboost-model")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    deploy.s3.create_bucket(Bucket="models")
    deploy.s3.put_object(Bucket="models", Key="houses.tar.gz", Body=packed.getvalue())
    container = {"Image": XGBOOST, "ModelDataUrl": "s3://models/houses.tar.gz"}
    deploy.sagemaker.create_model(ModelName="batch-houses", PrimaryContainer=container)
    return "batch-houses"


def test_one_file_of_csv_on_two_instances(transforms, houses, booster):
    rows = "".join(",".join(map(str, row)) + "\n" for row in ROWS)
    described = transforms.run(
        houses,
        {"rows.csv": rows},
        BatchStrategy="MultiRecord",
        MaxPayloadInMB=1,
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )
    assert described["TransformJobStatus"] == "Completed", described
    assert described["CreationTime"] <= described["TransformStartTime"]
    assert described["TransformStartTime"] <= described["TransformEndTime"]
    outputs = transforms.outputs(described["TransformJobName"])
    assert list(outputs) == ["rows.csv.out"]
    predicted = [float(line) for line in outputs["rows.csv.out"].split("\n") if line]
    expected = booster.predict(xgboost.DMatrix(ROWS, nthread=1))
    assert predicted == pytest.approx(list(expected), rel=1e-5)


def test_whole_objects_are_streamed(transforms, upper):
    described = transforms.run(upper, {"a.csv": "one\ntwo\n"}, MaxPayloadInMB=0, split="None")
    assert described["TransformJobStatus"] == "Completed", described
    assert transforms.outputs(described["TransformJobName"]) == {"a.csv.out": "ONE\nTWO\n"}


def test_an_object_over_the_usual_limit_of_bodies_is_streamed(transforms, upper):
    body = "".join(f"{number} of a large object\n" for number in range(1_300_000))
    assert len(body) > 30 * 2**20
    described = transforms.run(upper, {"a.csv": body}, MaxPayloadInMB=0, split="None")
    assert described["TransformJobStatus"] == "Completed", described
    assert transforms.outputs(described["TransformJobName"]) == {"a.csv.out": body.upper()}


def test_the_log_says_what_to_do_where_a_stream_is_too_large(transforms, houses, aws):
    rows = "1.0,2.0\n" * 2_700_000
    described = transforms.run(houses, {"a.csv": rows}, MaxPayloadInMB=0, split="None")
    assert described["TransformJobStatus"] == "Failed"
    name = described["TransformJobName"]
    messages = logged(aws, name, "/data-log")
    assert any(f"batch-in/{name}/a.csv: ClientError: 413" in line for line in messages), messages
    assert any("Let the job send parts of the object (SplitType" in line for line in messages)
    assert transforms.outputs(name) == {}


def test_a_pipeline_passes_each_batch_through_all_its_containers(transforms, deploy):
    scripts = {
        "upper": UPPER,
        "twice": UPPER.replace("data.upper()", "data + b'|' + data"),
    }
    containers = [
        {"Image": IMAGE, "ModelDataUrl": deploy.upload(f"batch-line/{name}.tar.gz", script)}
        for name, script in scripts.items()
    ]
    deploy.sagemaker.create_model(
        ModelName="batch-line", ExecutionRoleArn=ROLE, Containers=containers
    )
    described = transforms.run("batch-line", {"a.csv": "one\ntwo\n"}, BatchStrategy="SingleRecord")
    assert described["TransformJobStatus"] == "Completed", described
    outputs = transforms.outputs(described["TransformJobName"])
    assert outputs == {"a.csv.out": "ONE|ONE\nTWO|TWO\n"}


def test_the_waiter_and_the_list_know_it(transforms, upper, aws):
    name = transforms.start(upper, {"a.csv": "one\n", "deep/b.csv": "two\n"})
    waiter = aws.client("sagemaker").get_waiter("transform_job_completed_or_stopped")
    waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    assert transforms.outputs(name) == {"a.csv.out": "ONE\n", "deep/b.csv.out": "TWO\n"}
    listed = aws.client("sagemaker").list_transform_jobs(NameContains=name)
    (summary,) = listed["TransformJobSummaries"]
    assert summary["TransformJobStatus"] == "Completed"


def test_a_bad_object_fails_the_job_and_the_others_are_done(transforms, upper, aws):
    name = transforms.start(upper, {"bad.csv": "refuse\n", "good.csv": "fine\n"})
    waiter = aws.client("sagemaker").get_waiter("transform_job_completed_or_stopped")
    with pytest.raises(WaiterError):
        waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    described = transforms.describe(name)
    assert described["FailureReason"].endswith("Error: See job logs for more information")
    assert transforms.outputs(name) == {"good.csv.out": "FINE\n"}
    messages = logged(aws, name, "/data-log")
    assert any(f"batch-in/{name}/bad.csv: " in message for message in messages), messages
    assert any("MaxConcurrentTransforms=" in message for message in messages), messages
    # The command says why, where SageMaker's reason only names the log.
    shown = command(aws, "transform", "show", name).stdout
    assert f"batch-in/{name}/bad.csv: " in shown.partition("Log: ")[2]


def logged(aws, name, end):
    """The lines of the job's streams whose names end so."""
    logs, group = aws.client("logs"), "/aws/sagemaker/TransformJobs"
    listed = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")
    streams = [stream["logStreamName"] for stream in listed["logStreams"]]
    chosen = [stream for stream in streams if stream.endswith(end)]
    assert chosen, streams
    return [
        event["message"]
        for stream in chosen
        for event in logs.get_log_events(
            logGroupName=group, logStreamName=stream, startFromHead=True
        )["events"]
    ]


def test_a_model_that_does_not_load_is_the_reason(transforms, deploy):
    deploy.model("batch-broken", "def model_fn(folder):\n    raise KeyError('houses')\n")
    described = transforms.run("batch-broken", {"a.csv": "one\n"})
    assert described["TransformJobStatus"] == "Failed"
    assert "did not pass the ping health check" in described["FailureReason"]
    assert "houses" in described["FailureReason"]
    assert "TransformStartTime" not in described


def test_a_stopped_job_leaves_no_instance(transforms, deploy):
    deploy.model("batch-slow", WAITS)
    name = transforms.start("batch-slow", {f"{number:03}.csv": "x\n" for number in range(200)})
    eventually(lambda: "TransformStartTime" in transforms.describe(name))
    transforms.sagemaker.stop_transform_job(TransformJobName=name)
    assert transforms.describe(name)["TransformJobStatus"] in ("Stopping", "Stopped")
    eventually(lambda: transforms.describe(name)["TransformJobStatus"] == "Stopped")
    with pytest.raises(ClientError, match="Stopped"):
        transforms.sagemaker.stop_transform_job(TransformJobName=name)
    count = len(transforms.outputs(name))
    assert count < 200
    instances = transforms.deploy.server.home / "instances"
    logs = transforms.deploy.server.home / "logs" / "transform-jobs" / name
    ids = {path.name.partition(".")[0] for path in logs.glob("i-*.log")}
    assert ids
    eventually(lambda: not any((instances / instance_id).exists() for instance_id in ids))
    assert len(transforms.outputs(name)) == count


def test_progress_events_tags_and_metrics(transforms, upper, aws, events, sqs, source):
    queue = sqs.create_queue(QueueName=f"transforms-{uuid.uuid4().hex}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {"detail-type": ["SageMaker Transform Job State Change"]}
    rule = f"rule-{source}"
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "q", "Arn": arn["QueueArn"]}])
    described = transforms.run(upper, {"a.csv": "1\n2\n"}, Tags=[{"Key": "team", "Value": "a"}])
    name = described["TransformJobName"]
    statuses = []

    def told():
        answer = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            detail = json.loads(message["Body"])["detail"]
            if detail["TransformJobName"] == name:
                statuses.append((detail["TransformJobStatus"], detail["Tags"]))
        return len(statuses) >= 2

    eventually(told)
    assert sorted(statuses) == [("Completed", {"team": "a"}), ("InProgress", {"team": "a"})]
    events.remove_targets(Rule=rule, Ids=["q"])
    events.delete_rule(Name=rule)
    tags = transforms.sagemaker.list_tags(ResourceArn=described["TransformJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "a"}]


def test_the_command_shows_and_watches_it(transforms, upper, aws):
    name = transforms.start(upper, {"a.csv": "1\n2\n", "b.csv": "3\n"})
    watched = command(aws, "transform", "watch", name, "--interval", "0.1")
    assert watched.status == 0, watched.stderr
    assert watched.stdout.splitlines()[-1] == f"{name} is Completed."
    assert "2 of 2 objects, 3 records" in watched.stdout
    described = json.loads(command(aws, "transform", "show", name, "--json").stdout)
    assert (described["objects"], described["records"], described["failed_objects"]) == (2, 3, 0)
    assert described["input_bytes"] == described["input_bytes_known"] == 6
    assert described["max_payload_in_mb"] == 6
    assert "Progress: 2 of 2 objects, 3 records" in command(aws, "transform", "show", name).stdout
    listed = json.loads(command(aws, "transform", "list", "--json").stdout)
    assert name in {job["TransformJobName"] for job in listed}
    assert "Completed" in command(aws, "transform", "list", "--status", "completed").stdout
    refused = command(aws, "transform", "stop", name)
    assert refused.status == 1
    assert "Completed" in refused.stderr
    missing = command(aws, "transform", "watch", "none")
    assert (missing.status, "no transform job" in missing.stderr) == (1, True)
    assert "MaxConcurrentTransforms=" in command(aws, "logs", name).stdout


def command(aws, *words):
    return run_command(*words, "--home", aws.home)
