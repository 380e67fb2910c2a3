"""The runner's process, with the S3 of a real server and real model servers."""

import gzip
import json
import signal
from uuid import uuid4

import pytest

from sagehen.services.sagemaker.transform.runner_messages import RunnerSpec
from support.server import eventually
from support.transform_process import RunnerProcess, access_of, instances_of

KEYS = ["a b+c%20&d=e.csv", "deep/er/ü 日本.csv", "line\nfeed\x01.csv", "'<&>\".csv"]
ENDED = {"type": "ended", "error": None, "message": ""}
SLOW_UPPER = """
import time
from pathlib import Path

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    if b"wait for " in data:
        gate = Path(data.split(b"wait for ")[1].split(b"\\n")[0].decode())
        while not gate.exists():
            time.sleep(0.01)
    if b"refuse" in data:
        raise ValueError("a row is bad")
    return data.upper(), "text/csv"
"""


@pytest.fixture(scope="module")
def runs(deploy):
    described = deploy.endpoint(
        "upper", SLOW_UPPER, {"TS_MAX_REQUEST_SIZE": str(10**8)}, InitialInstanceCount=2
    )
    assert described["EndpointStatus"] == "InService"
    return deploy


class Job:
    """A folder of each of two buckets, and the runners that have worked on them."""

    def __init__(self, runs, folder):
        self.runs, self.folder = runs, folder
        self.runners = []
        for bucket in ("transform-in", "transform-out"):
            runs.s3.create_bucket(Bucket=bucket)

    def start(self, spec=None, arguments=(), **changes):
        fields = {
            "job_id": uuid4().hex,
            "job_name": self.folder,
            "job_arn": f"arn:{self.folder}",
            "s3": access_of(self.runs.server),
            "started_at": 1.7e9,
            "input_type": "S3Prefix",
            "input_uri": f"s3://transform-in/{self.folder}/",
            "output_uri": f"s3://transform-out/{self.folder}",
            "content_type": "text/csv",
            "split_type": "Line",
            "assemble_with": "Line",
            **changes,
        }
        instances = instances_of(self.runs.server, "upper")
        self.runners.append(RunnerProcess(spec or RunnerSpec(**fields), instances, *arguments))
        return self.runners[-1]

    def put(self, name, data):
        self.runs.s3.put_object(Bucket="transform-in", Key=f"{self.folder}/{name}", Body=data)

    def outputs(self):
        listed = self.runs.s3.list_objects_v2(Bucket="transform-out", Prefix=f"{self.folder}/")
        keys = [entry["Key"] for entry in listed.get("Contents", [])]
        return {key.removeprefix(f"{self.folder}/"): self._read(key) for key in keys}

    def uploads(self):
        prefix = f"{self.folder}/"
        listed = self.runs.s3.list_multipart_uploads(Bucket="transform-out", Prefix=prefix)
        return listed.get("Uploads", [])

    def _read(self, key):
        return self.runs.s3.get_object(Bucket="transform-out", Key=key)["Body"].read()


@pytest.fixture
def job(runs, request):
    job = Job(runs, request.node.name)
    yield job
    for runner in job.runners:
        runner.kill()


def test_a_large_object_and_many_small_ones(job):
    lines = b"".join(b"row %d,abc\n" % number for number in range(2_000_000))
    job.put("large.csv", lines)
    job.put("empty.csv", b"")
    for key in KEYS:
        job.put(key, key.encode())

    plain = job.start(max_payload_mb=1, max_concurrent=2)
    assert plain.result() == ENDED, plain.messages
    outputs = job.outputs()

    assert outputs.pop("large.csv.out") == lines.upper()
    assert outputs.pop("empty.csv.out") == b""
    for key in KEYS:
        expected = b"\n".join(filter(None, key.encode().upper().split(b"\n"))) + b"\n"
        assert outputs.pop(f"{key}.out") == expected
    assert outputs == {}
    assert job.uploads() == []
    last = plain.of("progress")[-1]
    assert last["objects"] == last["objects_known"] == 2 + len(KEYS)
    assert plain.of("settings")[0]["max_concurrent"] == 2


def test_gzip_and_a_stream_of_any_size(job):
    data = b"".join(b"row %d\n" % number for number in range(3_000_000))
    job.put("x.gz", gzip.compress(data, 1))

    runner = job.start(
        compression="Gzip", split_type="None", assemble_with="None", max_payload_mb=0
    )

    assert runner.result() == ENDED, runner.of("data_log")
    assert job.outputs() == {"x.gz.out": data.upper()}
    assert job.uploads() == []


def test_a_refused_row_costs_its_object_or_itself(job):
    job.put("bad.csv", b"a\nrefuse\nc\n")
    job.put("good.csv", b"a\nb\n")

    failing = job.start(max_retries=0)
    assert failing.result() == {**ENDED, "error": "AlgorithmError"}
    assert job.outputs() == {"good.csv.out": b"A\nB\n"}
    (failed,) = failing.of("failed")
    assert failed["message"] == "Bad HTTP status received from algorithm: 500"

    tolerant = job.start(max_retries=0, options={"MAX_FAILED_RECORDS": "50%"})
    assert tolerant.result() == ENDED
    outputs = job.outputs()
    error = json.loads(outputs.pop("bad.csv.errors.jsonl"))
    assert (error["record"], error["status"]) == (1, 500)
    assert "a row is bad" in error["message"]
    assert outputs == {"bad.csv.out": b"A\nC\n", "good.csv.out": b"A\nB\n"}


def test_the_next_runner_continues_after_a_kill(job, tmp_path):
    gate = tmp_path / "gate"
    lines = b"".join(b"row %d\n" % number for number in range(3_000_000))
    job.put("a.csv", b"first\n")
    job.put("b.csv", lines + b"wait for %s\n" % bytes(gate))
    job.put("c.csv", b"last\n")

    killed = job.start(max_payload_mb=1)
    eventually(job.uploads)
    eventually(lambda: sum(len(done["keys"]) for done in killed.of("done")) == 2)
    killed.kill()
    assert job.outputs().keys() == {"a.csv.out", "c.csv.out"}
    assert len(job.uploads()) == 1

    gate.touch()
    spec = killed.next_spec()
    assert spec.done_through.endswith("/a.csv")
    following = job.start(spec)
    assert following.result() == ENDED
    outputs = job.outputs()
    assert outputs["b.csv.out"] == (lines + b"wait for %s\n" % bytes(gate)).upper()
    (left,) = job.uploads()  # to control, by its owner
    assert left["UploadId"].startswith("o" + spec.job_id)
    assert [done["keys"] for done in following.of("done")] == [[f"{spec.job_name}/b.csv"]]


def test_a_runner_has_no_more_memory_than_its_limit(job):
    job.put("x.json", json.dumps([["x" * 30_000_000]]))

    runner = job.start(
        arguments=["--memory-bytes", str(512 * 2**20)],
        content_type="application/json",
        split_type="None",
        assemble_with="None",
        max_payload_mb=100,
        input_filter="$[0,0,0,0][0,0,0,0]",
    )

    status = runner.end()
    # msgspec 0.22 dereferences a null pointer where an encoder gets no memory.
    if status != -signal.SIGSEGV:
        assert (status, runner.messages[-1]["error"]) == (0, "ClientError"), runner.messages
        assert "more memory than transform_runner_memory" in runner.messages[-1]["message"]
    assert runner.of("failed") == []
    assert job.outputs() == {}


@pytest.mark.parametrize("way", ["stop", "leave"])
def test_a_runner_that_has_to_end_leaves_no_output(job, tmp_path, way):
    gate = tmp_path / "gate"
    job.put("x.csv", b"row\n" * 4_000_000 + b"wait for %s\n" % bytes(gate))
    runner = job.start(max_payload_mb=1)
    eventually(job.uploads)

    assert getattr(runner, way)() == 0

    gate.touch()
    assert job.outputs() == {}
    if way == "stop":
        assert job.uploads() == []
        assert runner.of("ended") == []
