"""kill -9 of any one process, and of all at once: nothing that was answered is lost."""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.async_bench import AsyncBench, Called, lines_of
from support.deploy import DOUBLE, pack
from support.processes import container_pids
from support.receiver import Receiver, hang
from support.server import eventually

MODELS = ["first", "second"]


@pytest.fixture(scope="module")
def killed(make_server, make_deployer):
    """A server with two endpoints that serve, for this module to hurt.

    What serves is what was deployed: one's object was overwritten since, the other's deleted.
    """
    deployer = make_deployer(make_server())
    for name in MODELS:
        assert deployer.endpoint(name)["EndpointStatus"] == "InService"
    other = pack({"code/inference.py": DOUBLE.replace("2.0", "7.0")})
    deployer.s3.put_object(Bucket="models", Key="first/model.tar.gz", Body=other)
    deployer.s3.delete_object(Bucket="models", Key="second/model.tar.gz")
    return deployer


def serves(deployer) -> bool:
    try:
        return all(deployer.invoke(name) == "[2.0, 4.0]" for name in MODELS)
    except (ClientError, BotoCoreError):
        return False


def is_described(deployer) -> bool:
    try:
        return all(deployer.status(name) == "InService" for name in MODELS)
    except (ClientError, BotoCoreError):
        return False


@pytest.mark.parametrize("role", ["gateway", "control", "agent"])
def test_each_role_is_restarted_alone(killed, wait_until, role):
    before = killed.server.pids()
    os.kill(before[role], signal.SIGKILL)
    wait_until(lambda: killed.server.pids().get(role, before[role]) != before[role])
    wait_until(lambda: serves(killed))
    wait_until(lambda: is_described(killed))
    after = killed.server.pids()
    assert {name: pid for name, pid in after.items() if name != role} == {
        name: pid for name, pid in before.items() if name != role
    }


def test_the_data_plane_serves_without_control(killed, wait_until):
    pid = killed.server.pid("control")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert serves(killed)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: killed.status("first") == "InService")


@pytest.fixture
def scaled(killed, wait_until):
    """The scalable target of an endpoint, and the ARN of a policy that adds an instance."""
    scaling = killed.server.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/first/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=5)
    step = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
    policy = scaling.put_scaling_policy(
        **target,
        PolicyName="step",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "StepAdjustments": [step],
        },
    )
    yield target, policy["PolicyARN"]
    scaling.deregister_scalable_target(**target)
    killed.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="first",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}],
    )
    wait_until(lambda: len(instance_pids(killed.server)) == len(MODELS))


def test_a_scaling_activity_survives_kills_of_control_and_happens_once(killed, scaled, wait_until):
    target, policy_arn = scaled
    scaling = killed.server.client("application-autoscaling")
    cloudwatch = killed.server.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="killed",
        Namespace="mine",
        MetricName="m",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        AlarmActions=[policy_arn],
    )
    cloudwatch.set_alarm_state(
        AlarmName="killed",
        StateValue="ALARM",
        StateReason="a test",
        StateReasonData=json.dumps({"recentDatapoints": [1.0]}),
    )
    for _ in range(2):
        before = killed.server.pid("control")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda old=before: killed.server.pids().get("control", old) != old)

    def activities():
        try:
            return scaling.describe_scaling_activities(**target)["ScalingActivities"]
        except (ClientError, BotoCoreError):
            return []

    wait_until(lambda: [one["StatusCode"] for one in activities()] == ["Successful"])
    (activity,) = activities()
    assert activity["Description"] == "Setting desired instance count to 2."
    (variant,) = killed.settled("first")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    cloudwatch.delete_alarms(AlarmNames=["killed"])


def instance_pids(server) -> list[int]:
    return container_pids(server.pid("agent"))


def test_a_killed_instance_comes_back(killed, wait_until):
    before = instance_pids(killed.server)
    victim, *others = before
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in instance_pids(killed.server))
    wait_until(lambda: len(instance_pids(killed.server)) == len(before))
    wait_until(lambda: serves(killed))
    assert set(instance_pids(killed.server)) & set(before) == set(others)
    assert is_described(killed)


@dataclass
class Before:
    """What there was when everything was killed."""

    processes: set[int]
    bench: AsyncBench
    calls: list[Called]
    sent: set[str]
    """MessageIds of what a topic's subscriber had not accepted yet."""
    receiver: Receiver
    posts: int
    """How many it had had."""


@pytest.fixture(scope="module")
def all_killed(killed, module_gates) -> Iterator[Before]:
    """Everything at once: with the supervisor the kernel ends the others, by SIGKILL too."""
    server, receiver, gate = killed.server, Receiver(), module_gates / "open"
    bench, calls = accept_calls(killed, gate)
    sent = send_to_one_who_hangs(server, receiver)
    sqs = server.client("sqs")
    queue = sqs.create_queue(QueueName="kept")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="kept")
    processes = {*server.pids().values(), *instance_pids(server)}
    server.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
    gate.touch()
    receiver.answers.clear()
    posts = len(receiver.posts)
    server.start()
    yield Before(processes, bench, calls, sent, receiver, posts)
    receiver.close()


def accept_calls(killed, gate: Path) -> tuple[AsyncBench, list[Called]]:
    """Some are worked on, the others wait for them."""
    bench, began = AsyncBench(killed), gate.with_name("began")
    assert bench.endpoint("async")["EndpointStatus"] == "InService"
    calls = [bench.call("async", number=number, gate=gate, began=began) for number in range(9)]
    eventually(lambda: bool(lines_of(began)))
    return bench, calls


def send_to_one_who_hangs(server, receiver: Receiver) -> set[str]:
    """More than it is sent at once; the MessageIds."""
    sns = server.client("sns")
    topic = sns.create_topic(Name="told")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url("/told"))
    receiver.confirm("/told")
    receiver.answers["/told"] = [hang]
    sent = {sns.publish(TopicArn=topic, Message=str(n))["MessageId"] for n in range(20)}
    receiver.wait_for("/told", "Notification")
    return sent


def test_nothing_outlives_a_killed_supervisor_and_all_comes_back(killed, all_killed, wait_until):
    listed = killed.sagemaker.list_endpoints()["Endpoints"]
    assert {endpoint["EndpointName"] for endpoint in listed} == {*MODELS, "async"}
    listed = killed.sagemaker.list_models()["Models"]
    assert {model["ModelName"] for model in listed} == {*MODELS, "async-model"}
    wait_until(lambda: serves(killed))
    assert is_described(killed)
    now = {*killed.server.pids().values(), *instance_pids(killed.server)}
    assert not all_killed.processes & now


def test_what_was_accepted_before_all_was_killed_is_answered_after_it(all_killed):
    bench, calls = all_killed.bench, all_killed.calls
    assert [json.loads(called.output())["number"] for called in calls] == list(range(9))
    assert all(len(bench.notices(called)) == 1 for called in calls)


def test_what_was_published_before_all_was_killed_is_delivered_after_it(all_killed, wait_until):
    def delivered() -> set[str]:
        return {post.json["MessageId"] for post in all_killed.receiver.posts[all_killed.posts :]}

    wait_until(lambda: delivered() >= all_killed.sent)
    assert delivered() == all_killed.sent


def test_what_was_in_a_queue_before_all_was_killed_is_there_after_it(killed, all_killed):
    sqs = killed.server.client("sqs")
    url = sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "kept"


def test_objects_are_whole_or_absent(killed, wait_until):
    """Objects are written without a pause while control is killed: each is whole or not there."""
    s3 = killed.s3
    s3.create_bucket(Bucket="faults")
    answered: list[str] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            body = os.urandom(512 * 1024)
            key = f"{number}-{hashlib.sha256(body).hexdigest()}"
            number += 1
            try:
                s3.put_object(Bucket="faults", Key=key, Body=body)
                answered.append(key)
            except (ClientError, BotoCoreError):
                stop.wait(0.02)  # Nobody listens for a moment.

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            count = len(answered)
            wait_until(lambda count=count: len(answered) > count + 3)
            before = killed.server.pid("control")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda pid=before: killed.server.pids().get("control", pid) != pid)
        count = len(answered)
        wait_until(lambda: len(answered) > count)
    finally:
        stop.set()
        writer.join()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="faults")
    kept = [one["Key"] for page in pages for one in page.get("Contents", [])]
    assert set(answered) <= set(kept)
    for key in kept:
        body = s3.get_object(Bucket="faults", Key=key)["Body"].read()
        assert key.endswith(hashlib.sha256(body).hexdigest())
