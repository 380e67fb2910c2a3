"""A mixed load for `power_loss.py`, and what was acknowledged to it."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.deploy import Deployer
from support.server import eventually

__all__ = ["SIZES", "Ledger", "Load"]

LOAD_SECONDS = 15.0
LEAST_ENTRIES = 100
"""of objects, and of texts; a busy machine takes longer for them"""
OVERWRITTEN = 8
SIZES = (100, 3_000, 40_000, 300_000)
"""bytes: in rows, and in files"""


@dataclass
class Ledger:
    """What was acknowledged, with the length of the journal at that moment."""

    journal: Path
    texts: list[tuple[int, str]] = field(default_factory=list)
    """each is somewhere in the state"""
    deleted: list[tuple[int, str]] = field(default_factory=list)
    """each is nowhere in the state"""
    objects: dict[str, list[tuple[int, int, bytes | None]]] = field(default_factory=dict)
    """by key, in order: lengths before the request and after its answer, and the content"""

    def now(self) -> int:
        return self.journal.stat().st_size

    def note(self, text: str) -> None:
        self.texts.append((self.now(), text))

    def note_deleted(self, text: str) -> None:
        self.deleted.append((self.now(), text))

    def lost_at(self, at: int, state: str) -> list[str]:
        """Returns what was acknowledged before a point and is missing, or deleted and there."""
        missing = [text for noted, text in self.texts if noted <= at and text not in state]
        return missing + [text for noted, text in self.deleted if noted <= at and text in state]

    def write(self, key: str, content: bytes | None, write: Callable[[], object]) -> None:
        """`content`: None for a deletion."""
        began = self.now()
        write()
        self.objects.setdefault(key, []).append((began, self.now(), content))

    def allowed(self, key: str, at: int) -> set[bytes | None]:
        """The contents that the object may have at a point: the last that was acknowledged, or one
        whose request had begun."""
        allowed: set[bytes | None] = {None}
        for began, answered, content in self.objects[key]:
            if answered <= at:
                allowed = {content}
            elif began <= at:
                allowed.add(content)
        return allowed


class Load:
    """Threads that write until they are stopped; each request is of one thread's own names."""

    def __init__(self, deployer: Deployer, ledger: Ledger) -> None:
        self.ledger, self.deployer = ledger, deployer
        self.errors: list[BaseException] = []
        self.s3, self.runtime = deployer.s3, deployer.runtime
        self.sqs, self.sns, self.cloudwatch = map(
            deployer.server.client, ("sqs", "sns", "cloudwatch")
        )
        self.topic, self.queue = self._subscribe()
        self.s3.create_bucket(Bucket="load")
        self.s3.put_object(Bucket="load", Key="input", Body=b"[1, 2]")
        output = {"OutputConfig": {"S3OutputPath": "s3://load/answers"}}
        deployer.model("later")
        self.variant = {
            "VariantName": "AllTraffic",
            "ModelName": "later",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        deployer.sagemaker.create_endpoint_config(
            EndpointConfigName="later",
            ProductionVariants=[self.variant],
            AsyncInferenceConfig=output,
        )
        deployer.sagemaker.create_endpoint(EndpointName="later", EndpointConfigName="later")
        assert deployer.settled("later")["EndpointStatus"] == "InService"
        self.until = time.monotonic() + LOAD_SECONDS

    def _subscribe(self) -> tuple[str, str]:
        queue = self.sqs.create_queue(QueueName="notices")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
        self.deletes = self.sqs.create_queue(QueueName="deletes")["QueueUrl"]
        topic = self.sns.create_topic(Name="news")["TopicArn"]
        queue_arn = arn["Attributes"]["QueueArn"]
        self.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn)
        return topic, queue

    def run(self) -> None:
        works = [
            *[self.put_new] * 2,
            *[self.overwrite] * 2,
            self.upload,
            self.messages,
            self.calls,
            self.records,
            self.jobs,
        ]
        threads = [
            threading.Thread(target=self._repeat, args=(work, number))
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _repeat(self, work: Callable[[random.Random, str], None], number: int) -> None:
        chance = random.Random(number)
        try:
            for count in itertools.count():
                if self._is_over():
                    return
                work(chance, f"{number}-{count}")
        except BaseException as error:
            self.errors.append(error)

    def _is_over(self) -> bool:
        least = min(len(self.ledger.objects), len(self.ledger.texts))
        return bool(self.errors) or (time.monotonic() > self.until and least > LEAST_ENTRIES)

    def _content(self, chance: random.Random, name: str) -> bytes:
        return f"{name} ".encode() + chance.randbytes(chance.choice(SIZES))

    def put_new(self, chance: random.Random, name: str) -> None:
        content = self._content(chance, name)
        self._put(f"new-{name}", content)
        copied = {"Bucket": "load", "Key": f"new-{name}"}
        self.ledger.write(
            f"copy-{name}",
            content,
            lambda: self.s3.copy_object(Bucket="load", Key=f"copy-{name}", CopySource=copied),
        )

    def overwrite(self, chance: random.Random, name: str) -> None:
        thread = name.partition("-")[0]
        key = f"same-{thread}-{chance.randrange(OVERWRITTEN)}"
        if chance.random() < 0.2:
            self.ledger.write(key, None, lambda: self.s3.delete_object(Bucket="load", Key=key))
        else:
            self._put(key, self._content(chance, name))

    def _put(self, key: str, content: bytes) -> None:
        put = self.s3.put_object
        self.ledger.write(key, content, lambda: put(Bucket="load", Key=key, Body=content))

    def upload(self, chance: random.Random, name: str) -> None:
        target = {"Bucket": "load", "Key": f"parts-{name}"}
        content = self._content(chance, name)
        upload = {**target, "UploadId": self.s3.create_multipart_upload(**target)["UploadId"]}
        part = self.s3.upload_part(**upload, PartNumber=1, Body=content)
        listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        complete = self.s3.complete_multipart_upload
        self.ledger.write(
            target["Key"], content, lambda: complete(**upload, MultipartUpload=listed)
        )

    def messages(self, chance: random.Random, name: str) -> None:
        body = f"sent-{chance.randrange(10**12)}"
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)
        self.ledger.note(body)
        body = f"published-{chance.randrange(10**12)}"
        self.sns.publish(TopicArn=self.topic, Message=body)
        self.ledger.note(body)
        body = f"deleted-{chance.randrange(10**12)}"
        self.sqs.send_message(QueueUrl=self.deletes, MessageBody=body)
        (message,) = self.sqs.receive_message(QueueUrl=self.deletes)["Messages"]
        receipt = message["ReceiptHandle"]
        self.sqs.delete_message(QueueUrl=self.deletes, ReceiptHandle=receipt)
        self.ledger.note_deleted(body)

    def calls(self, chance: random.Random, name: str) -> None:
        accepted = self.runtime.invoke_endpoint_async(
            EndpointName="later", InputLocation="s3://load/input"
        )
        self.ledger.note(accepted["OutputLocation"].rpartition("/")[2])

    def records(self, chance: random.Random, name: str) -> None:
        alarm = f"alarm-{chance.randrange(10**12)}"
        self.cloudwatch.put_metric_alarm(
            AlarmName=alarm,
            Namespace="N",
            MetricName="M",
            Statistic="Sum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanThreshold",
        )
        self.ledger.note(alarm)
        metric = f"metric-{chance.randrange(10**12)}"
        self.cloudwatch.put_metric_data(
            Namespace="N", MetricData=[{"MetricName": metric, "Value": 1}]
        )
        self.ledger.note(metric)
        config = f"config-{chance.randrange(10**12)}"
        self.deployer.sagemaker.create_endpoint_config(
            EndpointConfigName=config, ProductionVariants=[self.variant]
        )
        self.ledger.note(config)

    def jobs(self, chance: random.Random, name: str) -> None:
        """One job at a time, so that the others get their share of the machine."""
        sagemaker = self.deployer.sagemaker
        job = f"trained-{chance.randrange(10**12)}"
        self.deployer.training_job(job, "/bin/true")
        self.ledger.note(job)
        transform = f"transformed-{chance.randrange(10**12)}"
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://load/input"}}
        sagemaker.create_transform_job(
            TransformJobName=transform,
            ModelName="later",
            TransformInput={"DataSource": source, "ContentType": "application/json"},
            TransformOutput={"S3OutputPath": "s3://load/transformed"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )
        self.ledger.note(transform)
        eventually(
            lambda: (
                sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"]
                != "InProgress"
            )
        )
        eventually(
            lambda: (
                sagemaker.describe_transform_job(TransformJobName=transform)["TransformJobStatus"]
                != "InProgress"
            )
        )
