"""Transform jobs with the AWS CLI: created, waited for, listed and stopped."""

import json

import pytest

from support.server import eventually

UPPER = """
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    return data.upper(), "text/csv"
"""
RESOURCES = "InstanceType=ml.m5.large,InstanceCount=1"
# The CLI looks at a job each minute.
WAIT = "sagemaker wait transform-job-completed-or-stopped --transform-job-name"


@pytest.fixture(scope="module")
def create(cli, deploy, tmp_path_factory):
    """`create(name)` creates a job over one object of two lines."""
    deploy.model("cli-upper", UPPER)
    cli("s3 mb s3://cli-transform")
    path = tmp_path_factory.mktemp("cli") / "a b.csv"
    path.write_text("one\ntwo\n")
    cli("s3 cp", path, "s3://cli-transform/in/")

    def create(name, model="cli-upper"):
        source = {"S3DataType": "S3Prefix", "S3Uri": "s3://cli-transform/in/"}
        data = {
            "DataSource": {"S3DataSource": source},
            "ContentType": "text/csv",
            "SplitType": "Line",
        }
        return cli.json(
            f"sagemaker create-transform-job --transform-job-name {name} --model-name {model} "
            f"--transform-resources {RESOURCES} --batch-strategy SingleRecord "
            f"--transform-output S3OutputPath=s3://cli-transform/{name},AssembleWith=Line "
            "--transform-input",
            json.dumps(data),
        )

    return create


def status(cli, name):
    described = cli.json(f"sagemaker describe-transform-job --transform-job-name {name}")
    return described["TransformJobStatus"]


def test_a_job_is_waited_for_and_listed(cli, create):
    arn = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/cli-job"
    assert create("cli-job") == {"TransformJobArn": arn}
    eventually(lambda: status(cli, "cli-job") == "Completed")
    cli(WAIT, "cli-job")
    assert cli("s3 cp", "s3://cli-transform/cli-job/a b.csv.out", "-") == "ONE\nTWO\n"
    listed = cli.json(
        "sagemaker list-transform-jobs --name-contains cli-job --status-equals Completed"
    )
    assert [job["TransformJobArn"] for job in listed["TransformJobSummaries"]] == [arn]
    code, _, wrong = cli.run("sagemaker stop-transform-job --transform-job-name cli-job")
    assert (code, "the transform job is in status Completed" in wrong) == (255, True), wrong


def test_a_job_is_stopped(cli, create, deploy):
    deploy.model("cli-slow", "import time\n" + UPPER.replace("data.upper()", "time.sleep(600)"))
    create("cli-stopped", "cli-slow")
    eventually(lambda: status(cli, "cli-stopped") == "InProgress")
    cli("sagemaker stop-transform-job --transform-job-name cli-stopped")
    eventually(lambda: status(cli, "cli-stopped") == "Stopped")
    cli(WAIT, "cli-stopped")
    listed = cli.json("sagemaker list-transform-jobs --status-equals Stopped")
    assert "cli-stopped" in {job["TransformJobName"] for job in listed["TransformJobSummaries"]}


def test_a_job_that_failed_ends_the_wait_with_an_error(cli, create, deploy):
    deploy.model("cli-broken", "def model_fn(folder):\n    raise KeyError('no model')\n")
    create("cli-failed", "cli-broken")
    eventually(lambda: status(cli, "cli-failed") == "Failed")
    code, _, wrong = cli.run(WAIT, "cli-failed")
    assert (code, "terminal failure state" in wrong) == (255, True), wrong
