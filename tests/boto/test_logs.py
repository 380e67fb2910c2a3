"""CloudWatch Logs by real clients: boto3, and how the SageMaker SDK and the CLI follow logs."""

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagehen.agent.instances.container_log import ContainerLog
from support.deploy import Deployer
from support.server import Server, eventually

SCRIPT = """
def model_fn(model_dir):
    print("the model is loaded", flush=True)
    return 2.0

def predict_fn(data, model):
    print("asked for", data.tolist(), flush=True)
    return data * model
"""
GROUP = "/aws/sagemaker/Endpoints/logged"
JOBS = "/aws/sagemaker/TrainingJobs"


@pytest.fixture(scope="module")
def logs(aws: Server) -> Any:
    return aws.client("logs")


@pytest.fixture(scope="module")
def ask(deploy: Deployer) -> Callable[[int], None]:
    """`ask(5)` has an endpoint print that it was asked for 5."""
    deploy.endpoint("logged", script=SCRIPT)

    def ask(number: int) -> None:
        deploy.runtime.invoke_endpoint(
            EndpointName="logged", Body=f"[{number}]", ContentType="application/json"
        )

    return ask


@pytest.fixture
def print_as(aws: Server) -> Callable[[str, str, str], None]:
    """`print_as("job", "algo-1", "text")` adds to a job's log as the agent does."""
    made: dict[tuple[str, str], ContainerLog] = {}

    def print_as(job: str, host: str, text: str) -> None:
        if (job, host) not in made:
            path = aws.home / "logs" / "training-jobs" / job / f"{host}.log"
            made[job, host] = ContainerLog(path, 10**6)
        made[job, host].add(text)

    return print_as


def test_an_endpoint_s_log(logs: Any, ask: Callable[[int], None]) -> None:
    ask(41)
    ask(42)
    (group,) = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    assert group["logGroupName"] == GROUP
    (stream,) = logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert stream["logStreamName"].startswith("AllTraffic/")
    assert len(stream["logStreamName"].split("/")) == 2

    def texts() -> list[str]:
        answer = logs.get_log_events(
            logGroupName=GROUP,
            logStreamName=stream["logStreamName"],
            startFromHead=True,
        )
        times = [one["timestamp"] for one in answer["events"]]
        assert times == sorted(times)
        return [one["message"] for one in answer["events"]]

    eventually(lambda: "asked for [42]" in texts())
    assert texts().index("asked for [41]") < texts().index("asked for [42]")

    def filtered() -> list[str]:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=GROUP, logStreamNamePrefix="AllTraffic/", filterPattern='"asked for" -[41]'
        )
        return [one["message"] for page in pages for one in page["events"]]

    eventually(lambda: filtered() == ["asked for [42]"])


def test_the_sdk_follows_a_job(logs: Any, print_as: Callable[[str, str, str], None]) -> None:
    """What `estimator.fit(logs=True)` and `logs_for_job` of version 2 ask for at each turn."""
    positions: dict[str, tuple[int, int]] = {}
    """Of each stream the time last seen, and how many events of that time were."""

    def turn() -> list[str]:
        try:
            streams = logs.describe_log_streams(
                logGroupName=JOBS,
                logStreamNamePrefix="sdk-job/",
                orderBy="LogStreamName",
                limit=2,
            )
        except ClientError as error:
            # The first job of all finds no group, until a container prints.
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return []
        shown = []
        for stream in streams["logStreams"]:
            name = stream["logStreamName"]
            since, skip = positions.get(name, (0, 0))
            token: dict[str, str] = {}
            while True:
                answer = logs.get_log_events(
                    logGroupName=JOBS,
                    logStreamName=name,
                    startTime=since,
                    startFromHead=True,
                    **token,
                )
                if not answer["events"]:
                    break
                token = {"nextToken": answer["nextForwardToken"]}
                for event in answer["events"][skip:]:
                    shown.append(event["message"])
                    moment, count = positions.get(name, (0, 0))
                    same = event["timestamp"] == moment
                    positions[name] = (event["timestamp"], count + 1 if same else 1)
                skip = max(0, skip - len(answer["events"]))
        return shown

    assert turn() == []
    print_as("sdk-job", "algo-1", "one")
    print_as("sdk-job-2", "algo-1", "of another job")
    assert turn() == ["one"]
    print_as("sdk-job", "algo-2", "two")
    print_as("sdk-job", "algo-1", "three")
    print_as("sdk-job", "algo-1", "four")
    assert turn() == ["three", "four", "two"]
    assert turn() == []
    assert [name.rpartition("-")[0] for name in sorted(positions)] == [
        "sdk-job/algo-1",
        "sdk-job/algo-2",
    ]


def test_the_cli_follows_a_group(logs: Any, print_as: Callable[[str, str, str], None]) -> None:
    """What `aws logs tail --follow` of the CLI's version 2 asks for at each turn."""
    seen: dict[int, set[str]] = defaultdict(set)
    shown: list[str] = []
    asked: dict[str, Any] = {
        "logGroupName": JOBS,
        "logStreamNamePrefix": "tailed",
        "interleaved": True,
        "startTime": int((time.time() - 600) * 1000),
    }

    def turn() -> bool:
        answer = logs.filter_log_events(**asked)
        for event in answer["events"]:
            if event["eventId"] not in seen[event["timestamp"]]:
                seen[event["timestamp"]].add(event["eventId"])
                shown.append(event["message"])
        asked.pop("nextToken", None)
        if "nextToken" in answer:
            asked["nextToken"] = answer["nextToken"]
        elif shown:
            newest = max(seen)
            asked["startTime"] = newest
            for moment in set(seen) - {newest}:
                del seen[moment]
        return len(shown) == number + 1

    printed = []
    for number in range(20):
        printed.append(f"line {number}")
        print_as(f"tailed-{number % 3}", "algo-1", printed[-1])
        if number % 4 == 3:
            eventually(turn)
    for stream in range(3):
        assert [one for one in shown if one in printed[stream::3]] == printed[stream::3]
    assert len(shown) == len(printed), "none twice"


def test_a_training_job_s_log(logs: Any, deploy: Deployer, gates: Path) -> None:
    gate = gates / "gate"
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.01; done; echo two; printf three"
    began = int(time.time())
    deploy.training_job("printing", "/bin/sh", "-c", script)
    asked = {"logGroupName": JOBS, "logStreamNamePrefix": "printing/"}

    def messages() -> list[str]:
        answer = logs.filter_log_events(**asked)
        return [one["message"] for one in answer["events"]]

    eventually(lambda: stream_of_a_job_is_there(logs, asked))
    (stream,) = logs.describe_log_streams(**asked)["logStreams"]
    job, host, epoch = stream["logStreamName"].replace("/algo-1-", "/algo-1/").split("/")
    assert (job, host) == ("printing", "algo-1")
    assert began - 1 <= int(epoch) <= time.time()
    eventually(lambda: messages() == ["one"])
    opened_ms = time.time() * 1000
    gate.touch()
    eventually(lambda: messages() == ["one", "two", "three"])
    times = [one["timestamp"] for one in logs.filter_log_events(**asked)["events"]]
    assert times[0] <= opened_ms <= times[1] + 1, "when they were printed, not when they were read"


def stream_of_a_job_is_there(logs: Any, asked: dict[str, Any]) -> bool:
    try:
        return bool(logs.describe_log_streams(**asked)["logStreams"])
    except ClientError:
        return False


def test_names_are_no_paths(logs: Any, aws: Server) -> None:
    for group in ("/aws/sagemaker/Endpoints/..", f"{GROUP}/../logged", "/aws/lambda/f", "../logs"):
        with pytest.raises(ClientError) as caught:
            logs.describe_log_streams(logGroupName=group)
        assert caught.value.response["Error"]["Code"] == "ResourceNotFoundException"
    with pytest.raises(ClientError) as caught:
        logs.get_log_events(logGroupName="a b", logStreamName="c")
    error = caught.value.response["Error"]
    assert error["Code"] == "InvalidParameterException"
    assert "'logGroupName' failed to satisfy constraint" in error["Message"]
    with pytest.raises(ClientError) as caught:
        logs.create_log_group(logGroupName="mine")
    assert caught.value.response["Error"]["Code"] == "UnsupportedOperation"
