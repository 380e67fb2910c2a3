"""Two servers on one PostgreSQL and one S3, whose leader is killed, stopped for a while and ended,
while everything that a leader does is under way: nothing is lost, and nothing is done twice.

`TWO_CONTROLS_ROUNDS=50 pytest tests/faults/test_two_controls.py` does it as often as it takes to
believe it; a run of all tests makes three faults.
"""

import json
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from sagehen.state.database import Database
from support.deploy import Deployer
from support.postgres import running_postgres
from support.receiver import Receiver
from support.server import eventually
from support.sure_endpoint import (
    Clients,
    Notices,
    assert_nothing_more,
    begin_sure_endpoint,
    is_drained,
    objects,
    wrongs,
)
from support.transform_kills import UPPER, outputs
from support.two_servers import FAULTS, TwoServers, answered

ROUNDS = int(os.environ.get("TWO_CONTROLS_ROUNDS", "3"))
SEED = int(os.environ.get("TWO_CONTROLS_SEED", "0")) or random.randrange(1, 2**32)
TIMEOUT_SECONDS = 240
LONGEST_TAKE_OVER_SECONDS = 60
"""generous: 3 s on a machine that has nothing else to do"""
LARGE = "".join(f"{number},a line of a large object\n" for number in range(200_000))
TRANSFORMED = {"large.csv": LARGE} | {f"{n:03}.csv": f"a {n}\nb {n}\n" for n in range(20 * ROUNDS)}
TRAINING_SECONDS = 8
POLICY_STEPS = [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 2}]


@pytest.fixture(scope="module")
def pair(make_server, server):
    with running_postgres() as url:
        server.client("s3").create_bucket(Bucket="two-servers")
        keys = server.env
        options = {
            "endpoint": server.url,
            "access_key_id": keys["AWS_ACCESS_KEY_ID"],
            "secret_access_key": keys["AWS_SECRET_ACCESS_KEY"],
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
        }
        shared = {
            "database_url": url,
            "object_store_url": "s3://two-servers/kept",
            "object_store_options": json.dumps(options),
            "max_job_restarts": "1000",
        }
        database = Database(url)
        servers = [make_server(**shared) for _ in range(2)]
        yield TwoServers(servers, database)
        for one in servers:
            one.stop()
        database.close()


def test_both_have_the_same_keys(pair):
    one, two = (server.home for server in pair.servers)
    for name in ("credentials.json", "token", "message-key.pem"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_each_takes_some_parts_of_an_upload(pair):
    s3 = pair.client("s3")
    s3.create_bucket(Bucket="parts")
    at = {"Bucket": "parts", "Key": "big"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    bodies = [bytes([number]) * (5 * 2**20) for number in range(3)]
    parts = []
    for number, body in enumerate(bodies, start=1):
        etag = s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(**at)["Body"].read() == b"".join(bodies)


def test_a_message_sent_at_one_ends_a_long_poll_at_the_other(pair):
    """By itself that one would look again when the poll ends."""
    one, two = (server.client("sqs", read_timeout=60) for server in pair.servers)
    url = one.create_queue(QueueName="long")["QueueUrl"]
    for sender, receiver in ((one, two), (two, one)):
        with ThreadPoolExecutor(1) as pool:
            began = time.monotonic()
            polling = pool.submit(receiver.receive_message, QueueUrl=url, WaitTimeSeconds=20)
            time.sleep(1)  # it may begin to wait only after the message: then it need not wait
            sender.send_message(QueueUrl=url, MessageBody="now")
            (message,) = polling.result()["Messages"]
            assert time.monotonic() - began < 15
        receiver.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.timeout(max(900, ROUNDS * 60))
def test_all_that_a_leader_does_goes_on(pair):
    print("seed:", SEED)  # noqa: T201
    deployer = Deployer(pair.leader())
    first_epoch = pair.look().epoch
    queue = begin_sure_endpoint(deployer, instances=1)
    receiver = Receiver()
    try:
        work = _Work(pair, deployer, receiver)
        with Notices(pair, queue) as notices:
            with Clients(pair) as clients:
                told = clients.told
                clients.ahead = lambda: len(told.accepted) - len(notices.ids)
                for fault in _faults():
                    enough = len(told.accepted) + 20
                    eventually(lambda enough=enough: len(told.accepted) >= enough, TIMEOUT_SECONDS)
                    pair.strike(fault)
            eventually(lambda: told.accepted.keys() <= notices.ids.keys(), TIMEOUT_SECONDS)
            eventually(lambda: is_drained(pair), TIMEOUT_SECONDS)
            written = objects(pair.leader())
            eventually(lambda: len(notices.ids) >= len(written), TIMEOUT_SECONDS)
            work.check()
        spare = pair.look().epoch - first_epoch - ROUNDS
        report = {fault: [round(one, 2) for one in took] for fault, took in pair.took.items()}
        posted = Counter(post.json["MessageId"] for post in receiver.at("/hook", "Notification"))
        print(  # noqa: T201
            f"\n{ROUNDS} rounds, seed {SEED}: seconds to take over {report}; accepted "
            f"{len(told.accepted)}, without an answer {len(told.unanswered)}; posted again "
            f"{sum(posted.values()) - len(posted)} of {len(posted)}; changes of "
            f"the leader without a fault {spare}"
        )
        wrong = [*wrongs(told, notices, written)]
        assert not wrong, (SEED, wrong[:20])
        assert_nothing_more(told, notices, written)
        assert max(max(took) for took in pair.took.values()) < LONGEST_TAKE_OVER_SECONDS
        succeeded = {
            message_id
            for name, ids in notices.ids.items()
            if notices.statuses[name] == {"Completed"}
            for message_id in ids
        }
        eventually(lambda: succeeded <= _posted(receiver), TIMEOUT_SECONDS)
    finally:
        receiver.close()


def _faults():
    """Three different ones, then any."""
    chance = random.Random(SEED)
    yield from FAULTS[: min(ROUNDS, 3)]
    for _ in range(3, ROUNDS):
        yield chance.choice(FAULTS)


def _posted(receiver) -> set[str]:
    return {post.json["MessageId"] for post in receiver.at("/hook", "Notification")}


class _Work:
    """Jobs, an alarm with a scaling policy and deliveries by HTTP, begun with the first leader."""

    def __init__(self, pair, deployer, receiver) -> None:
        self._pair = pair
        self._follow_events(deployer)
        self._transform(deployer)
        for number in range(2):
            deployer.training_job(
                f"job-{number}",
                "/bin/sh",
                "-c",
                f"sleep {TRAINING_SECONDS}; echo {number} > /opt/ml/model/number",
            )
        self._subscribe(deployer, receiver)
        self._watch(deployer)

    def _follow_events(self, deployer) -> None:
        """Each event of a job, and of scaling, becomes a message."""
        client = deployer.server.client
        self._events = client("sqs").create_queue(QueueName="events")["QueueUrl"]
        self._messages = client("sqs").create_queue(QueueName="alarms")["QueueUrl"]
        client("events").put_rule(
            Name="jobs",
            EventPattern=json.dumps(
                {
                    "source": ["aws.sagemaker"],
                    "detail-type": [
                        "SageMaker Training Job State Change",
                        "SageMaker Transform Job State Change",
                    ],
                }
            ),
        )
        arn = "arn:aws:sqs:us-east-1:000000000000:events"
        client("events").put_targets(Rule="jobs", Targets=[{"Id": "q", "Arn": arn}])

    def _transform(self, deployer) -> None:
        for bucket in ("kills-in", "kills-out"):
            deployer.s3.create_bucket(Bucket=bucket)
        for key, body in TRANSFORMED.items():
            deployer.s3.put_object(Bucket="kills-in", Key=f"in/{key}", Body=body.encode())
        deployer.model("upper", UPPER)
        source = {"S3DataType": "S3Prefix", "S3Uri": "s3://kills-in/in/"}
        deployer.sagemaker.create_transform_job(
            TransformJobName="upper",
            ModelName="upper",
            BatchStrategy="MultiRecord",
            MaxPayloadInMB=1,
            TransformInput={
                "DataSource": {"S3DataSource": source},
                "ContentType": "text/csv",
                "SplitType": "Line",
            },
            TransformOutput={"S3OutputPath": "s3://kills-out/upper", "AssembleWith": "Line"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )

    def _subscribe(self, deployer, receiver) -> None:
        sns = deployer.server.client("sns")
        (topic,) = [
            one["TopicArn"]
            for one in sns.list_topics()["Topics"]
            if one["TopicArn"].endswith(":success")
        ]
        sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url("/hook"))
        receiver.confirm("/hook")

    def _watch(self, deployer) -> None:
        """An alarm that goes off some seconds from now, and scales the endpoint."""
        client = deployer.server.client
        scaling = client("application-autoscaling")
        target = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": "endpoint/sure/variant/AllTraffic",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
        scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=4)
        policy = scaling.put_scaling_policy(
            **target,
            PolicyName="steps",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ExactCapacity",
                "StepAdjustments": POLICY_STEPS,
                "Cooldown": 600,
            },
        )["PolicyARN"]
        sns = client("sns")
        topic = sns.create_topic(Name="alarms")["TopicArn"]
        arn = "arn:aws:sqs:us-east-1:000000000000:alarms"
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        cloudwatch = client("cloudwatch")
        cloudwatch.put_metric_alarm(
            AlarmName="hot",
            Namespace="Test",
            MetricName="heat",
            Statistic="Maximum",
            Period=10,
            EvaluationPeriods=1,
            DatapointsToAlarm=1,
            Threshold=5,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="ignore",
            AlarmActions=[topic, policy],
        )
        self._heat()

    def _heat(self) -> None:
        datum = {"MetricName": "heat", "Value": 9, "StorageResolution": 1}
        answered(
            lambda: self._pair.client("cloudwatch").put_metric_data(
                Namespace="Test", MetricData=[datum]
            )
        )

    def check(self) -> None:
        pair = self._pair
        sagemaker = pair.client("sagemaker")
        for number in range(2):
            name = f"job-{number}"
            job = sagemaker.describe_training_job
            eventually(
                lambda job=job, name=name: (
                    answered(lambda: job(TrainingJobName=name))["TrainingJobStatus"]
                    not in ("InProgress",)
                ),
                TIMEOUT_SECONDS,
            )
            described = answered(lambda job=job, name=name: job(TrainingJobName=name))
            assert described["TrainingJobStatus"] == "Completed", described
        transform = sagemaker.describe_transform_job
        eventually(
            lambda: (
                answered(lambda: transform(TransformJobName="upper"))["TransformJobStatus"]
                != "InProgress"
            ),
            TIMEOUT_SECONDS,
        )
        described = answered(lambda: transform(TransformJobName="upper"))
        assert described["TransformJobStatus"] == "Completed", described
        found = outputs(Deployer(pair.leader()), "upper")
        assert found == {f"{key}.out": text.upper().encode() for key, text in TRANSFORMED.items()}
        self._check_scaling()
        ends = Counter(
            (event["detail-type"], _status(event["detail"]), _name(event["detail"]))
            for event in self._received(self._events)
            if _status(event["detail"]) == "Completed"
        )
        assert sorted(ends.values()) == [1, 1, 1], ends

    def _check_scaling(self) -> None:
        pair = self._pair
        cloudwatch, scaling = pair.client("cloudwatch"), pair.client("application-autoscaling")

        def state() -> str:
            (alarm,) = answered(lambda: cloudwatch.describe_alarms(AlarmNames=["hot"]))[
                "MetricAlarms"
            ]
            if alarm["StateValue"] != "ALARM":
                self._heat()
            return str(alarm["StateValue"])

        eventually(lambda: state() == "ALARM", TIMEOUT_SECONDS)

        def activities():
            return answered(
                lambda: scaling.describe_scaling_activities(ServiceNamespace="sagemaker")
            )["ScalingActivities"]

        eventually(lambda: bool(activities()), TIMEOUT_SECONDS)
        eventually(
            lambda: [one["StatusCode"] for one in activities()] == ["Successful"], TIMEOUT_SECONDS
        )
        history = answered(
            lambda: cloudwatch.describe_alarm_history(
                AlarmName="hot", HistoryItemType="StateUpdate"
            )
        )["AlarmHistoryItems"]
        changes = [one for one in history if "to ALARM" in one["HistorySummary"]]
        messages = [
            message
            for envelope in self._received(self._messages)
            if (message := json.loads(envelope["Message"]))["NewStateValue"] == "ALARM"
        ]
        assert len(changes) == len(messages) == 1, (changes, messages)

    def _received(self, queue: str):
        """All messages of a queue; it must not get more."""
        found, quiet_since = {}, time.monotonic()
        sqs = self._pair.client("sqs")
        while time.monotonic() - quiet_since < 3:
            try:
                got = sqs.receive_message(
                    QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1
                ).get("Messages", [])
            except (ClientError, BotoCoreError):
                continue
            for message in got:
                found[message["MessageId"]] = json.loads(message["Body"])
                quiet_since = time.monotonic()
        return list(found.values())


def _status(detail) -> str:
    return str(detail.get("TrainingJobStatus") or detail.get("TransformJobStatus"))


def _name(detail) -> str:
    return str(detail.get("TrainingJobName") or detail.get("TransformJobName"))
