"""`sagehen training`: training jobs from the command line."""

import json
import shlex

import pytest

from support.cli import run_command
from support.server import SAGEHEN, clean_environment, eventually, run_to_its_end


@pytest.fixture(scope="module")
def jobs(server, deploy):
    """Two jobs of which one fails; both have ended."""
    deploy.training_job(
        "cmd-good", "sh", "-c", "echo seen by the command; echo 1 > /opt/ml/model/x"
    )
    deploy.training_job("cmd-bad", "sh", "-c", "echo trouble > /opt/ml/output/failure; exit 3")
    sagemaker = server.client("sagemaker")

    def has_ended(name):
        told = sagemaker.describe_training_job(TrainingJobName=name)
        return told["TrainingJobStatus"] in ("Completed", "Failed")

    for name in ("cmd-good", "cmd-bad"):
        eventually(lambda name=name: has_ended(name))
    return server


def told(server, *words):
    ended = run_command(*words, "--home", server.home)
    assert ended.status == 0, ended.stderr
    return ended.stdout


def test_they_are_listed(jobs):
    rows = {line.split()[0]: line.split() for line in told(jobs, "training", "list").splitlines()}
    assert rows["cmd-good"][1:3] == ["Completed", "Completed"]
    assert rows["cmd-bad"][1:3] == ["Failed", "Failed"]
    failed = json.loads(told(jobs, "training", "list", "--status", "failed", "--json"))
    assert "cmd-bad" in {job["TrainingJobName"] for job in failed}
    assert {job["TrainingJobStatus"] for job in failed} == {"Failed"}
    assert len(json.loads(told(jobs, "training", "list", "-n", "1", "--json"))) == 1
    none = told(jobs, "training", "list", "--status", "stopping")
    assert none == "There are no training jobs that are Stopping.\n"


def test_one_is_shown(jobs):
    shown = told(jobs, "training", "show", "cmd-bad")
    assert "Status: Failed (Failed)" in shown
    assert ": Starting: Preparing the instances for training\n" in shown
    assert "Failure reason: AlgorithmError" in shown
    assert "trouble" in shown
    described = json.loads(told(jobs, "training", "show", "cmd-good", "--json"))
    assert described["TrainingJobStatus"] == "Completed"
    assert "ResponseMetadata" not in described


def test_its_log_is_read(jobs):
    assert "seen by the command" in told(jobs, "logs", "cmd-good")


def test_one_that_is_not_there_is_said(jobs):
    ended = run_command("training", "show", "nothing", "--home", jobs.home)
    assert ended.status == 1
    assert "There is no training job 'nothing'; `sagehen training list`" in ended.stderr


def test_the_names_of_jobs_are_completed(jobs):
    words = ["sagehen", "training", "show", "--home", str(jobs.home), "cmd-g"]
    environment = clean_environment() | {
        "_SAGEHEN_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    assert run_to_its_end([SAGEHEN], environment) == "cmd-good\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("jobs", "list"), ("training", "list")),
        (("jobs", "show", "cmd-good"), ("training", "show", "cmd-good")),
        (("jobs", "interrupt", "--count", "0"), ("training", "interrupt", "--count", "0")),
        (("transform", "describe", "none"), ("transform", "show", "none")),
        (("async", "status", "none"), ("async", "show", "none")),
        (("offline-results", "describe", "none"), ("offline-results", "show", "none")),
    ],
    ids=" ".join,
)
def test_an_older_name_of_a_command_does_the_same(jobs, old, new):
    ended = [run_command(*words, "--home", jobs.home) for words in (old, new)]
    assert ended[0] == ended[1]
    assert ended[0].stdout + ended[0].stderr
