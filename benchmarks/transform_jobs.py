"""Transform jobs of the benchmark: their inputs in S3, one job, and its times."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from house import Question
from sides import IMAGE, ROLE, Failed, Server, packed, server

BUCKET = "transforms"
MODEL = "house"
LONGEST_SECONDS = 3600.0
POLL_SECONDS = 0.1
"""Each look takes some milliseconds of the machine that works on the job."""
ROWS_OF_A_BLOCK = 100_000
PART_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Times:
    """The times of one batch job, in seconds."""

    work: float
    """without the start of processes: from TransformStartTime to TransformEndTime"""
    whole: float
    """from CreateTransformJob, or the start of the program, to the end"""


def make_rows(rows: int) -> bytes:
    """Returns CSV of six columns, like the rows that the model was trained with."""
    generator = np.random.default_rng(1)
    parts = []
    for start in range(0, rows, ROWS_OF_A_BLOCK):
        size = (min(ROWS_OF_A_BLOCK, rows - start), 6)
        data = generator.normal([1995, 3000, 4, 2, 1, 1.5], [10, 750, 1, 0.7, 0.2, 1], size)
        parts += [",".join(map(str, row)) for row in data.round(2).tolist()]
    return ("\n".join(parts) + "\n").encode()


def expected_of(question: Question, text: bytes) -> np.ndarray:
    """Returns what the library says of all rows."""
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(question.model)
    booster.set_param({"nthread": 1})
    cells = np.array(text.replace(b"\n", b",").strip(b",").split(b","), np.float32)
    predictions: np.ndarray = booster.inplace_predict(cells.reshape(-1, 6))
    return predictions


@contextmanager
def server_with_model(question: Question, folder: Path, **settings: str) -> Iterator[Server]:
    """Yields a server that has the model, and an empty bucket."""
    with server(folder, **settings) as running:
        s3 = running.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        archive = packed({"xgboost-model": question.model})
        s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=archive)
        container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
        running.client("sagemaker").create_model(
            ModelName=MODEL, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        yield running


def put_repeated(running: Server, key: str, block: bytes, size: int) -> int:
    """Writes an object of about so many bytes, whole blocks; returns how many blocks."""
    s3 = running.client("s3")
    part = block * (PART_BYTES // len(block) + 1)
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    parts = []
    for number in range(1, max(1, size // len(part)) + 1):
        sent = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=part)
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    s3.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
    )
    return len(parts) * (PART_BYTES // len(block) + 1)


def run_job(
    running: Server,
    name: str,
    prefix: str,
    instances: int = 1,
    strategy: str = "MultiRecord",
    watch: Callable[[], None] = lambda: None,
    **more: Any,
) -> Times:
    """Runs a job to its end; `more` are fields of CreateTransformJob.

    `watch` is called in every look at the job.
    """
    sagemaker = running.client("sagemaker")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}}
    began = time.perf_counter()
    sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName=MODEL,
        TransformInput={"DataSource": source, "ContentType": "text/csv", "SplitType": "Line"},
        TransformOutput={"S3OutputPath": f"s3://{BUCKET}/{name}", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": instances},
        BatchStrategy=strategy,
        **more,
    )
    while time.perf_counter() - began < LONGEST_SECONDS:
        job = sagemaker.describe_transform_job(TransformJobName=name)
        if job["TransformJobStatus"] == "Completed":
            whole = time.perf_counter() - began
            work = (job["TransformEndTime"] - job["TransformStartTime"]).total_seconds()
            return Times(work, whole)
        if job["TransformJobStatus"] != "InProgress":
            raise Failed(f"The job {name} is {job['TransformJobStatus']}: {job}")
        watch()
        time.sleep(POLL_SECONDS)
    raise Failed(f"The job {name} did not end in {LONGEST_SECONDS:.0f} s.")


def output_of(running: Server, name: str, key: str) -> bytes:
    body = running.client("s3").get_object(Bucket=BUCKET, Key=f"{name}/{key}.out")["Body"]
    content: bytes = body.read()
    return content


def progress_of(running: Server, name: str) -> dict[str, Any]:
    token = (running.home / "token").read_text()
    url = f"{running.url}/_sagehen/transform-jobs/{name}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        return dict(json.loads(answer.read()))


def check_predictions(name: str, output: bytes, expected: np.ndarray, exact: bool = True) -> None:
    """Compares float for float, without their order if not `exact`, and then some may differ: not
    every reader of CSV rounds as the others do."""
    got = np.array(output.split(), np.float32)
    if len(got) != len(expected):
        raise Failed(f"{name}: {len(got)} predictions for {len(expected)} rows.")
    if exact:
        different = int(np.count_nonzero(got != expected))
        most = 0
    else:
        different = int(np.count_nonzero(np.sort(got) != np.sort(expected)))
        most = len(expected) // 1000
    if different > most:
        raise Failed(f"{name}: {different} predictions are not the model's.")
