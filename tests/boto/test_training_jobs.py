"""Training jobs, by a real boto3 client of a real server."""

import io
import json
import tarfile
import uuid
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError, WaiterError

from support.cli import run_command
from support.server import SAGEHEN, clean_environment, eventually, run_to_its_end


@pytest.fixture(scope="module")
def sagemaker(aws):
    return aws.client("sagemaker")


@pytest.fixture(scope="module")
def bucket(aws):
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="training-jobs")
    s3.put_object(Bucket="training-jobs", Key="in/a.txt", Body=b"one line\n")
    return "training-jobs"


class Jobs:
    """`run("shell command", Member=…)` is the description of a job that has ended."""

    def __init__(self, sagemaker, logs, bucket):
        self.sagemaker, self.logs, self.bucket = sagemaker, logs, bucket

    def start(self, command, name=None, **members):
        name = name or f"boto-{uuid.uuid4().hex[:12]}"
        given = {
            "AlgorithmSpecification": {
                "TrainingImage": "model-a",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c", command],
            },
            "RoleArn": "arn:aws:iam::000000000000:role/Sagehen",
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/out"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            **members,
        }
        self.sagemaker.create_training_job(TrainingJobName=name, **given)
        return name

    def describe(self, name):
        return self.sagemaker.describe_training_job(TrainingJobName=name)

    def until(self, name, *secondary):
        eventually(lambda: self.describe(name)["SecondaryStatus"] in secondary)
        return self.describe(name)

    def until_said(self, name, line):
        """Its log has that line, and it is told to be training."""
        group = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{name}/"}

        def has_said():
            found = self.logs.filter_log_events(**group, filterPattern=line)["events"]
            return line in [one["message"] for one in found]

        eventually(has_said)
        self.until(name, "Training")

    def ended(self, name):
        waiter = self.sagemaker.get_waiter("training_job_completed_or_stopped")
        waiter.config.delay, waiter.config.max_attempts = 0.05, 2400
        waiter.wait(TrainingJobName=name)
        return self.describe(name)

    def run(self, command, **members):
        return self.ended(self.start(command, **members))


@pytest.fixture(scope="module")
def jobs(aws, sagemaker, bucket):
    return Jobs(sagemaker, aws.client("logs"), bucket)


def statuses(job):
    return [one["Status"] for one in job["SecondaryStatusTransitions"]]


def refusal(act):
    with pytest.raises(ClientError) as refused:
        act()
    return refused.value.response["Error"]


def test_a_job_from_its_input_to_its_model(aws, jobs, bucket):
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/in/"}},
    }
    command = (
        "cd $SAGEMAKER_BASE_DIR && cat input/data/train/a.txt input/config/hyperparameters.json"
        " > model/model.txt && echo loss=0.25; echo loss=0.125"
    )
    algorithm = {
        "TrainingImage": "model-a",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/sh", "-c", command],
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    }
    job = jobs.run(
        command,
        AlgorithmSpecification=algorithm,
        InputDataConfig=[channel],
        HyperParameters={"epochs": "3"},
        Tags=[{"Key": "team", "Value": "rails"}],
    )
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Completed"
    assert statuses(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    times = [job[one] for one in ("CreationTime", "TrainingStartTime", "TrainingEndTime")]
    assert times == sorted(times)
    assert 1 <= job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"] <= 60
    assert job["HyperParameters"] == {"epochs": "3"}
    metrics = {one["MetricName"]: one["Value"] for one in job.get("FinalMetricDataList", [])}
    assert metrics == {"loss": 0.125}
    address = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert address == f"s3://{bucket}/out/{job['TrainingJobName']}/output/model.tar.gz"
    body = aws.client("s3").get_object(Bucket=bucket, Key=address.split("/", 3)[3])["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        kept = archive.extractfile("model.txt").read()
    line, parameters = kept.split(b"\n", 1)
    assert (line, json.loads(parameters)) == (b"one line", {"epochs": "3"})
    sagemaker = aws.client("sagemaker")
    tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "rails"}]


def test_a_job_that_fails_says_why(jobs):
    name = jobs.start("echo 'no such file' > $SAGEMAKER_BASE_DIR/output/failure; exit 3")
    with pytest.raises(WaiterError, match="Failed"):
        jobs.ended(name)
    job = jobs.describe(name)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Failed"
    assert job["FailureReason"] == "AlgorithmError: no such file, exit code: 3"
    assert job["SecondaryStatusTransitions"][-1]["StatusMessage"] == job["FailureReason"]


def test_a_job_is_stopped_and_what_it_wrote_is_kept(aws, jobs, bucket):
    command = (
        "trap 'echo late > model/late; exit 0' TERM; cd $SAGEMAKER_BASE_DIR; "
        "echo early > model/early; echo ready; sleep 60 & wait"
    )
    name = jobs.start(command)
    jobs.until_said(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.describe(name)["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = jobs.ended(name)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Stopped"
    assert statuses(job)[2:] == ["Training", "Stopping", "Uploading", "Stopped"]
    key = job["ModelArtifacts"]["S3ModelArtifacts"].split("/", 3)[3]
    body = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert {"early", "late"} <= set(archive.getnames())
    error = refusal(lambda: jobs.sagemaker.stop_training_job(TrainingJobName=name))
    said = "The request was rejected because the training job is in status Stopped."
    assert (error["Code"], error["Message"]) == ("ValidationException", said)


def test_a_job_that_runs_too_long(jobs):
    job = jobs.run("sleep 60", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert statuses(job)[3] == "Stopping"


def test_a_spot_job_that_is_interrupted_goes_on_from_its_checkpoint(aws, jobs, bucket):
    checkpoint = {"S3Uri": f"s3://{bucket}/checkpoints/{uuid.uuid4().hex}"}
    command = (
        "cd $SAGEMAKER_BASE_DIR; if [ -e checkpoints/half ]; then cp checkpoints/half model/whole;"
        " else echo half > checkpoints/half; echo ready; sleep 60; fi"
    )
    name = jobs.start(
        command,
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
        CheckpointConfig=checkpoint,
    )
    jobs.until_said(name, "ready")
    command = [SAGEHEN, "jobs", "interrupt", name, "--home", str(aws.home)]
    assert run_to_its_end(command, clean_environment()) == f"1 interrupted.\n{name}\n"
    job = jobs.ended(name)
    once = ["Starting", "Downloading", "Training"]
    assert statuses(job) == [*once, "Interrupted", *once, "Uploading", "Completed"]
    assert job["EnableManagedSpotTraining"] is True
    assert job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"]


def test_every_status_is_told_by_eventbridge(aws, jobs):
    events, sqs = aws.client("events"), aws.client("sqs")
    url = sqs.create_queue(QueueName="job-states")["QueueUrl"]
    wanted = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
    arn = sqs.get_queue_attributes(**wanted)["Attributes"]["QueueArn"]
    name = f"told-{uuid.uuid4().hex[:8]}"
    pattern = {"source": ["aws.sagemaker"], "detail": {"TrainingJobName": [name]}}
    events.put_rule(Name="job-states", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="job-states", Targets=[{"Id": "queue", "Arn": arn}])
    jobs.ended(jobs.start("true", name=name, Tags=[{"Key": "team", "Value": "rails"}]))
    told = []

    def all_told():
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
        for message in answer.get("Messages", []):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            told.append(json.loads(message["Body"]))
        return len(told) >= 5

    eventually(all_told)
    assert {one["detail-type"] for one in told} == {"SageMaker Training Job State Change"}
    in_time = sorted(told, key=lambda one: len(one["detail"]["SecondaryStatusTransitions"]))
    details = [one["detail"] for one in in_time]
    assert [one["SecondaryStatus"] for one in details] == statuses(jobs.describe(name))
    assert [one["TrainingJobStatus"] for one in details] == ["InProgress"] * 4 + ["Completed"]
    assert details[-1]["Tags"] == {"team": "rails"}
    assert details[-1]["TrainingEndTime"].isdigit()
    events.remove_targets(Rule="job-states", Ids=["queue"])
    events.delete_rule(Name="job-states")


def test_more_than_may_run_are_pending(jobs):
    names = [jobs.start("sleep 60") for _ in range(3)]
    try:
        for name in names[:2]:
            jobs.until(name, "Training")
        jobs.until(names[2], "Pending")
        jobs.sagemaker.stop_training_job(TrainingJobName=names[2])
        assert statuses(jobs.ended(names[2])) == ["Pending", "Stopping", "Stopped"]
    finally:
        for name in names[:2]:
            jobs.sagemaker.stop_training_job(TrainingJobName=name)
            jobs.ended(name)


def test_a_name_is_free_again_once_its_job_was_deleted(jobs):
    name = jobs.start("sleep 60")
    error = refusal(lambda: jobs.start("true", name=name))
    assert error["Code"] == "ResourceInUse"
    error = refusal(lambda: jobs.sagemaker.delete_training_job(TrainingJobName=name))
    assert error["Code"] == "ResourceInUse"
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.ended(name)
    jobs.sagemaker.delete_training_job(TrainingJobName=name)
    jobs.start("true", name=name)
    assert jobs.ended(name)["TrainingJobStatus"] == "Completed"


def test_lists(jobs):
    stem = f"list-{uuid.uuid4().hex[:8]}"
    for letter in "ab":
        jobs.ended(jobs.start("true", name=f"{stem}-{letter}"))
    jobs.start("false", name=f"{stem}-c")
    jobs.until(f"{stem}-c", "Failed")

    def listed(**query):
        pages = jobs.sagemaker.get_paginator("list_training_jobs").paginate(
            NameContains=stem, PaginationConfig={"PageSize": 1}, **query
        )
        return [
            one["TrainingJobName"][-1] for page in pages for one in page["TrainingJobSummaries"]
        ]

    assert listed() == ["a", "b", "c"]
    assert listed(SortOrder="Descending") == ["c", "b", "a"]
    assert listed(SortBy="Name", SortOrder="Descending") == ["c", "b", "a"]
    assert listed(SortBy="Status") == ["a", "b", "c"]
    assert listed(StatusEquals="Failed") == ["c"]
    # Times are told to the millisecond, rounded.
    created = jobs.describe(f"{stem}-b")["CreationTime"] - timedelta(milliseconds=2)
    assert listed(CreationTimeBefore=created) == ["a"]
    assert listed(LastModifiedTimeAfter=created)[-2:] == ["b", "c"]
    assert listed(WarmPoolStatusEquals="Available") == []
    (summary,) = jobs.sagemaker.list_training_jobs(NameContains=f"{stem}-a")["TrainingJobSummaries"]
    assert summary["TrainingJobStatus"] == summary["SecondaryStatus"] == "Completed"


def test_updates(jobs):
    name = jobs.start("sleep 60")
    jobs.sagemaker.update_training_job(
        TrainingJobName=name,
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
        RemoteDebugConfig={"EnableRemoteDebug": True},
        ProfilerConfig={"DisableProfiler": True},
    )
    job = jobs.describe(name)
    assert job["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    assert job["ResourceConfig"]["InstanceType"] == "ml.m5.large"
    assert job["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.ended(name)
    error = refusal(lambda: jobs.sagemaker.update_training_job(TrainingJobName=name))
    assert error["Code"] == "ValidationException"


@pytest.mark.parametrize("operation", ["describe", "stop", "update", "delete"])
def test_a_job_that_is_not_there(sagemaker, operation):
    act = getattr(sagemaker, f"{operation}_training_job")
    error = refusal(lambda: act(TrainingJobName="nowhere"))
    code = "ResourceNotFound" if operation == "delete" else "ValidationException"
    assert (error["Code"], error["Message"]) == (code, "Requested resource not found.")


def test_bad_input(jobs, bucket):
    def said(**members):
        error = refusal(lambda: jobs.start("true", **members))
        return f"{error['Code']}: {error['Message']}"

    assert said(name="no_underscores").startswith(
        "ValidationException: 1 validation error detected"
    )
    assert "trainingJobName" in said(name="x" * 64)
    missing = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/nothing/"}
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": missing}}
    assert "No S3 objects found under S3 URL" in said(InputDataConfig=[channel])
    assert "there is no bucket" in said(
        OutputDataConfig={"S3OutputPath": "s3://not-there-at-all/x"}
    )
    assert "Invalid MaxWaitTimeInSeconds" in said(EnableManagedSpotTraining=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere"], "There is no training job nowhere."),
        (["a", "--count", "1"], "Give either a training job or --count."),
    ],
)
def test_the_command_line_says_what_is_wrong(aws, given, said):
    ended = run_command("jobs", "interrupt", *given, "--home", aws.home)
    assert (ended.status, ended.stdout) == (1, "")
    assert said in ended.stderr


def test_where_no_spot_job_runs_none_is_interrupted(aws):
    ended = run_command("jobs", "interrupt", "--json", "--home", aws.home)
    assert json.loads(ended.stdout)["interrupted"] == []
