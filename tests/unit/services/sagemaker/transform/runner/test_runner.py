"""Whole jobs, over objects in memory and containers that are functions."""

import asyncio
import gzip
import io
import json
from collections.abc import Sequence

import pytest

from sagehen.frame.s3_client import S3Error
from sagehen.http1.call import LocalAnswer
from sagehen.services.sagemaker.transform.runner import invocation, outputs
from sagehen.services.sagemaker.transform.runner import runner as runner_module
from sagehen.services.sagemaker.transform.runner.parameters import DEFAULTS
from sagehen.services.sagemaker.transform.runner_messages import (
    Capture,
    Done,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerLog,
    RunnerSettings,
    UploadBegun,
    UploadEnded,
)
from support.transform_runs import Container, MemoryStore, TransformRun, make_spec


async def upper(payload: bytes) -> bytes:
    return payload.upper()


async def test_each_object_has_an_output(job: TransformRun, store: MemoryStore) -> None:
    for number in range(10):
        store.objects["in", f"data/{number}.csv"] = b"a,%d\nb,%d\n" % (number, number)
    store.objects["in", "data/folder/"] = b""
    store.objects["in", "data/empty.csv"] = b""
    store.objects["in", "other/x.csv"] = b"x\n"

    ended = await job.run(make_spec(), Container(upper))

    assert ended == RunnerEnded()
    expected = {f"results/{n}.csv.out": b"A,%d\nB,%d\n" % (n, n) for n in range(10)}
    assert store.outputs() == {**expected, "results/empty.csv.out": b""}


async def test_records_stay_in_order_when_answers_do_not(
    job: TransformRun, store: MemoryStore
) -> None:
    lines = [b"%d" % number for number in range(500)]
    store.objects["in", "data/x"] = b"\n".join(lines)

    async def later_for_even(payload: bytes) -> bytes:
        for _ in range(20 if int(payload) % 2 == 0 else 1):
            await asyncio.sleep(0)
        return payload

    containers = [Container(later_for_even) for _ in range(3)]
    spec = make_spec(batch_strategy="SingleRecord", max_concurrent=4)
    await job.run(spec, *containers)

    assert store.outputs()["results/x.out"] == b"\n".join(lines) + b"\n"
    assert [container.most_busy for container in containers] == [4, 4, 4]


async def test_one_object_keeps_all_instances_busy(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"0123456789\n" * 800_000  # 9 MB

    async def slow(payload: bytes) -> bytes:
        for _ in range(50):
            await asyncio.sleep(0)
        return payload

    containers = [Container(slow) for _ in range(4)]
    await job.run(make_spec(max_payload_mb=1), *containers)

    assert store.outputs()["results/x.out"] == store.objects["in", "data/x"]
    assert all(container.most_busy == 1 for container in containers)
    assert min(len(container.payloads) for container in containers) >= 2


async def test_gzip_is_undone(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x.gz"] = gzip.compress(b"a\nb\n") + gzip.compress(b"c\n")
    await job.run(make_spec(compression="Gzip"), Container(upper))
    assert store.outputs() == {"results/x.gz.out": b"A\nB\nC\n"}


async def test_broken_gzip_fails_its_object_only(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/a.gz"] = b"not gzip"
    store.objects["in", "data/b.gz"] = gzip.compress(b"b\n")[:-3]
    store.objects["in", "data/c.gz"] = gzip.compress(b"c\n")

    ended = await job.run(make_spec(compression="Gzip"), Container(upper))

    assert ended == RunnerEnded(error="ClientError")
    assert store.outputs() == {"results/c.gz.out": b"C\n"}
    assert [failed.key for failed in job.of(FailedObject)] == ["data/a.gz", "data/b.gz"]


async def test_a_refused_record_costs_its_object(job: TransformRun, store: MemoryStore) -> None:
    for name in ("a", "b", "c"):
        store.objects["in", f"data/{name}"] = name.encode()

    async def refuse_b(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"bad row\nat 1") if payload == b"b" else payload

    container = Container(refuse_b)
    ended = await job.run(make_spec(), container)

    assert ended == RunnerEnded(error="ClientError")
    assert store.outputs().keys() == {"results/a.out", "results/c.out"}
    assert container.payloads.count(b"b") == 1
    (failed,) = job.of(FailedObject)
    assert failed == FailedObject(key="data/b", error="ClientError", message="ClientError: 400")
    assert [line.line for line in job.of(RunnerLog)][-4:] == [
        "[sagemaker logs]: in/data/b: ",
        "[sagemaker logs]: in/data/b: Message:",
        "[sagemaker logs]: in/data/b: bad row",
        "[sagemaker logs]: in/data/b: at 1",
    ]


async def test_failed_objects_count_as_finished_up_to_a_key(
    job: TransformRun, store: MemoryStore
) -> None:
    for name in ("a", "b", "c"):
        store.objects["in", f"data/{name}"] = name.encode()

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b""

    await job.run(make_spec(), Container(refuse))

    assert len(job.of(FailedObject)) == 3
    last = job.of(Done)[-1]
    assert (last.keys, last.through) == ((), "data/c")
    assert len(job.of(Done)) <= 3


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_other_errors_are_tried_again(
    job: TransformRun, store: MemoryStore, status: int
) -> None:
    store.objects["in", "data/x"] = b"x"
    answers = iter([(status, b"busy"), (status, b"busy")])

    async def fail_twice(payload: bytes) -> bytes | tuple[int, bytes]:
        return next(answers, payload)

    assert await job.run(make_spec(max_retries=2), Container(fail_twice)) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"x\n"}


async def test_retries_end(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"x"

    async def fail(payload: bytes) -> tuple[int, bytes]:
        return 500, b"Traceback"

    container = Container(fail)
    ended = await job.run(make_spec(max_retries=2), container)

    assert ended == RunnerEnded(error="AlgorithmError")
    assert len(container.payloads) == 3
    assert job.of(FailedObject)[0].message == "Bad HTTP status received from algorithm: 500"
    assert job.of(RunnerLog)[-1].line == "[sagemaker logs]: in/data/x: Traceback"


async def test_a_batch_of_an_instance_that_ends_goes_to_another(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"\n".join(b"%d" % number for number in range(100))
    first = True

    async def die_once(payload: bytes) -> bytes:
        nonlocal first
        if first:
            first = False
            raise ConnectionResetError
        return payload

    spec = make_spec(batch_strategy="SingleRecord", max_retries=0)
    assert await job.run(spec, Container(die_once), Container(upper)) == RunnerEnded()
    assert store.outputs()["results/x.out"] == store.objects["in", "data/x"] + b"\n"


async def test_a_batch_that_ends_every_instance_fails(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"x"

    async def die(payload: bytes) -> bytes:
        raise ConnectionResetError

    ended = await job.run(make_spec(), Container(die))

    assert ended == RunnerEnded(error="AlgorithmError")
    assert job.of(FailedObject)[0].message == "Unable to get response from algorithm"


async def test_a_slow_answer_is_a_failure(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"x"

    async def hang(payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    container = Container(hang)
    ended = await job.run(make_spec(timeout_seconds=0.01, max_retries=1), container)

    assert ended == RunnerEnded(error="AlgorithmError")
    assert len(container.payloads) == 2


async def test_parameters_of_the_container_count_unless_the_job_has_its_own(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"a\nb"
    body = {"MaxConcurrentTransforms": 3, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 2}
    job.parameters = LocalAnswer(200, json.dumps(body).encode())
    container = Container(upper)

    await job.run(make_spec(max_payload_mb=5), container)

    settings = RunnerSettings(max_concurrent=3, max_payload_mb=5, batch_strategy="SingleRecord")
    assert job.of(RunnerSettings) == [settings]
    assert container.payloads == [b"a", b"b"]
    line = "MaxConcurrentTransforms=3, MaxPayloadInMB=5, BatchStrategy=SINGLE_RECORD"
    assert job.of(RunnerLog) == [
        RunnerLog(instance_id="i-link:0", line=f"[sagemaker logs]: {line}")
    ]


async def test_a_container_may_refuse_to_answer_about_itself(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"x"
    job.parameters = None
    assert await job.run(make_spec(), Container(upper)) == RunnerEnded()
    assert job.of(RunnerSettings) == [DEFAULTS]
    assert job.clock.seconds > 1_700_000_000 + 20


async def test_an_answer_that_is_too_large_fails_its_object(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation, "MAX_ANSWER_BYTES", 10)
    store.objects["in", "data/x"] = b"0123456789x"
    container = Container(upper)
    assert await job.run(make_spec(), container) == RunnerEnded(error="AlgorithmError")
    assert len(container.payloads) == 1


async def test_the_next_runner_does_the_rest(job: TransformRun, store: MemoryStore) -> None:
    for name in "abcdef":
        store.objects["in", f"data/{name}"] = name.encode()
    settings = RunnerSettings(max_concurrent=1, max_payload_mb=6, batch_strategy="SingleRecord")
    spec = make_spec(
        done_through="data/b",
        done=("data/d", "data/e"),
        failed_error="ClientError",
        done_records=3,
        settings=settings,
    )
    container = Container(upper)

    ended = await job.run(spec, container)

    assert ended == RunnerEnded(error="ClientError")
    assert sorted(container.payloads) == [b"c", b"f"]
    assert store.outputs().keys() == {"results/c.out", "results/f.out"}
    assert job.of(RunnerSettings) == []
    assert sorted(key for done in job.of(Done) for key in done.keys) == ["data/c", "data/f"]
    assert job.of(Done)[-1].through == "data/f"
    last = job.of(Progress)[-1]
    assert (last.objects, last.objects_known, last.records, last.is_listed) == (6, 6, 5, True)
    assert (last.input_bytes, last.input_bytes_known) == (6, 6)


async def test_through_stops_before_an_unfinished_object(
    job: TransformRun, store: MemoryStore
) -> None:
    for name in "abcd":
        store.objects["in", f"data/{name}"] = name.encode()
    others_done = asyncio.Event()

    async def hold_b(payload: bytes) -> bytes:
        if payload == b"b":
            await others_done.wait()
        elif payload == b"d":
            asyncio.get_running_loop().call_later(0.01, others_done.set)
        return payload

    await job.run(make_spec(max_concurrent=2), Container(hold_b))

    told: set[str] = set()
    for done in job.of(Done):
        told.update(done.keys)
        if "data/b" not in told:
            assert done.through in (None, "data/a")
    assert done.through == "data/d"


async def test_large_outputs_go_up_in_parts(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "PART_BYTES", 10)
    store.objects["in", "data/x"] = b"0123456789\n" * 20

    await job.run(make_spec(batch_strategy="SingleRecord"), Container(upper))

    assert store.outputs() == {"results/x.out": b"0123456789\n" * 20}
    begun = UploadBegun(bucket="out", key="results/x.out", upload_id="upload-1")
    assert job.of(UploadBegun) == [begun]
    assert job.of(UploadEnded) == [UploadEnded(upload_id="upload-1")]


async def test_a_failed_object_leaves_no_upload(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "PART_BYTES", 1)
    store.objects["in", "data/x"] = b"a\nb\nc\nd"

    async def refuse_d(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"") if payload == b"d" else payload

    await job.run(make_spec(batch_strategy="SingleRecord"), Container(refuse_d))

    assert store.outputs() == {}
    assert store.uploads == {}
    assert job.of(UploadEnded) == [UploadEnded(upload_id="upload-1")]


async def test_uploads_of_an_earlier_runner_are_aborted_and_no_others(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"x"
    own = await store.create_upload("out", "results/x.out")
    other = await store.create_upload("out", "results/x.out")
    left = UploadBegun(bucket="out", key="results/x.out", upload_id=own)

    await job.run(make_spec(uploads=(left,)), Container(upper))

    assert store.uploads.keys() == {other}
    assert UploadEnded(upload_id=own) in job.messages


async def test_an_upload_that_cannot_be_aborted_is_not_forgotten(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.objects["in", "data/x"] = b"x"
    uploads = tuple(
        UploadBegun(bucket=bucket, key="results/x.out", upload_id=bucket) for bucket in ("a", "b")
    )

    async def refuse(bucket: str, key: str, upload_id: str) -> None:
        code = {"a": "AccessDenied", "b": "NoSuchBucket"}[bucket]
        raise S3Error(code, 403, "no")

    monkeypatch.setattr(store, "abort_upload", refuse)
    assert await job.run(make_spec(uploads=uploads), Container(upper)) == RunnerEnded()
    assert job.of(UploadEnded) == [UploadEnded(upload_id="b")]


async def test_failed_records_are_told_beside_the_output(
    job: TransformRun, store: MemoryStore
) -> None:
    lines = [b"bad" if number in (3, 40) else b"%d" % number for number in range(100)]
    store.objects["in", "data/x"] = b"\n".join(lines)

    async def refuse_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"not a number: bad") if b"bad" in payload else payload

    container = Container(refuse_bad)
    ended = await job.run(make_spec(options={"MAX_FAILED_RECORDS": "2%"}), container)

    assert ended == RunnerEnded()
    good = [line for line in lines if line != b"bad"]
    error = b'{"record":%d,"status":400,"message":"not a number: bad"}\n'
    assert store.outputs() == {
        "results/x.out": b"\n".join(good) + b"\n",
        "results/x.errors.jsonl": error % 3 + error % 40,
    }
    assert len(container.payloads) < 4 * 7 + 1
    assert sum(done.failed_records for done in job.of(Done)) == 2
    assert sum(done.records for done in job.of(Done)) == 100


async def test_too_many_failed_records_fail_the_job(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"a\nbad\nc"

    async def refuse_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        return (422, b"") if b"bad" in payload else payload

    spec = make_spec(options={"MAX_FAILED_RECORDS": "1"}, done_records=10, failed_records=1)
    ended = await job.run(spec, Container(refuse_bad))

    assert ended.error == "ClientError"
    assert ended.message.startswith("2 of 13 records failed, more than the 1 that ")
    assert store.outputs().keys() == {"results/x.out", "results/x.errors.jsonl"}


@pytest.mark.parametrize(("tolerated", "most_requests"), [("3", 30), ("1%", 2500)])
async def test_the_search_ends_when_too_many_have_failed(
    job: TransformRun, store: MemoryStore, tolerated: str, most_requests: int
) -> None:
    store.objects["in", "data/x"] = b"bad\n" * 5000

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b""

    container = Container(refuse)
    ended = await job.run(make_spec(options={"MAX_FAILED_RECORDS": tolerated}), container)

    assert ended == RunnerEnded(error="ClientError")
    assert len(container.payloads) < most_requests
    assert store.outputs() == {}


async def test_an_object_of_failed_records_only_has_no_output(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"bad"

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b""

    await job.run(make_spec(options={"MAX_FAILED_RECORDS": "100%"}), Container(refuse))
    assert store.outputs().keys() == {"results/x.errors.jsonl"}


async def test_a_manifest_names_the_inputs(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "list.json"] = json.dumps(
        [{"prefix": "s3://in/data/"}, "b", "deep/a", "b"]
    ).encode()
    store.objects["in", "data/b"] = b"b"
    store.objects["in", "data/deep/a"] = b"a"

    spec = make_spec(input_type="ManifestFile", input_uri="s3://in/list.json")
    assert await job.run(spec, Container(upper)) == RunnerEnded()

    assert store.outputs() == {"results/b.out": b"B\n", "results/deep/a.out": b"A\n"}
    last = job.of(Progress)[-1]
    assert (last.objects, last.input_bytes, last.input_bytes_known) == (2, 2, 2)


async def test_an_absent_object_of_a_manifest_fails(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "list.json"] = b'[{"prefix": "s3://in/data/"}, "absent", "b"]'
    store.objects["in", "data/b"] = b"b"
    spec = make_spec(input_type="ManifestFile", input_uri="s3://in/list.json")
    assert await job.run(spec, Container(upper)) == RunnerEnded(error="ClientError")
    assert store.outputs() == {"results/b.out": b"B\n"}


async def test_an_empty_input_fails_the_job(job: TransformRun) -> None:
    ended = await job.run(make_spec(), Container(upper))
    assert ended == RunnerEnded(
        error="ClientError", message="No S3 objects found under s3://in/data/."
    )


async def test_an_absent_bucket_of_outputs_fails_the_job(
    job: TransformRun, store: MemoryStore
) -> None:
    for name in "abc":
        store.objects["in", f"data/{name}"] = b"x"
    ended = await job.run(make_spec(output_uri="s3://absent/x"), Container(upper))
    assert ended.error == "ClientError"
    assert "NoSuchBucket" in ended.message


async def test_a_replaced_object_fails(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"0123456789\n" * 100_000

    async def replace(payload: bytes) -> bytes:
        return payload

    read = store.read

    async def read_and_replace(
        bucket: str, key: str, start: int, length: int, etag: str | None = None
    ) -> object:
        piece = await read(bucket, key, start, length, etag)
        store.objects["in", "data/x"] = b"new" * 1000
        return piece

    store.read = read_and_replace  # type: ignore[method-assign,assignment]
    ended = await job.run(make_spec(), Container(replace))
    assert ended == RunnerEnded(error="ClientError")
    assert job.of(FailedObject)[0].message == "It was replaced while it was read."
    assert store.outputs() == {}


async def test_capture_writes_manifests(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/a"] = b"a"
    store.objects["in", "data/b"] = b"bad"
    store.buckets.add("capture")

    async def refuse_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"") if payload == b"bad" else payload

    await job.run(make_spec(capture=Capture(uri="s3://capture/to")), Container(refuse_bad))

    captured = {
        key.rpartition("/")[0]: json.loads(data)
        for (bucket, key), data in store.objects.items()
        if bucket == "capture"
    }
    assert captured == {
        "to/input/2023/11/14/22": [{"prefix": "s3://in/data/"}, "a", "b"],
        "to/output/2023/11/14/22": [{"prefix": "s3://out/results/"}, "a.out"],
    }


async def test_manifests_leave_out_what_failed_with_an_earlier_runner(
    job: TransformRun, store: MemoryStore
) -> None:
    for name in "ab":
        store.objects["in", f"data/{name}"] = b"x"
    spec = make_spec(
        capture=Capture(uri="s3://out/to"),
        done=("data/a", "data/b"),
        failed=("data/b",),
        failed_error="ClientError",
    )
    await job.run(spec, Container(upper))
    manifests = [json.loads(data) for key, data in store.outputs().items() if "/output/" in key]
    assert manifests == [[{"prefix": "s3://out/results/"}, "a.out"]]


async def test_manifests_that_cannot_be_written_fail_the_job(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.objects["in", "data/a"] = b"a"
    put = store.put

    async def refuse(
        bucket: str, key: str, body: Sequence[bytes], content_type: str | None = None
    ) -> None:
        if key.startswith("to/"):
            raise S3Error("KeyTooLongError", 400, "Your key is too long")
        await put(bucket, key, body, content_type)

    monkeypatch.setattr(store, "put", refuse)
    runner = job.start(make_spec(capture=Capture(uri="s3://out/to")), Container(upper))
    ended = await asyncio.wait_for(runner.run(), 30)
    assert ended.error == "ClientError"
    assert "KeyTooLongError" in ended.message


async def test_a_job_waits_for_its_first_instance(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"x"
    container = Container(upper)
    container.is_reachable = False
    runner = job.start(make_spec(), container)
    running = asyncio.create_task(runner.run())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not running.done()

    container.is_reachable = True
    runner.instances.update(list(runner.instances._instances))

    assert await asyncio.wait_for(running, 30) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"X\n"}


async def test_records_are_filtered_and_joined(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"id1,1,2\nid2,3,4\n"

    async def add(payload: bytes) -> bytes:
        rows = [line.split(b",") for line in payload.split()]
        return b"\n".join(b"%d" % sum(map(int, row)) for row in rows)

    spec = make_spec(
        content_type="text/csv",
        accept="text/csv",
        input_filter="$[1:]",
        output_filter="$[0,-1]",
        join_source="Input",
    )
    assert await job.run(spec, Container(add)) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"id1,3\nid2,7\n"}


async def test_a_record_that_cannot_be_filtered_is_a_failed_record(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"1,2\n3\n4,5\n"
    spec = make_spec(
        content_type="text/csv",
        accept="text/csv",
        input_filter="$[1]",
        options={"MAX_FAILED_RECORDS": "1"},
    )
    assert await job.run(spec, Container(upper)) == RunnerEnded()
    outputs = store.outputs()
    assert outputs["results/x.out"] == b"2\n5\n"
    assert json.loads(outputs["results/x.errors.jsonl"])["record"] == 1


async def test_a_filter_that_is_refused_late_fails_the_job(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"1,2\n"
    container = Container(upper)
    spec = make_spec(content_type="text/csv", accept="text/csv", input_filter="$[0:2,4:]")
    assert await job.run(spec, container) == RunnerEnded(error="ClientError")
    assert "only single range filters" in job.of(RunnerLog)[-1].line
    assert container.payloads == []


async def test_parquet_becomes_csv(job: TransformRun, store: MemoryStore) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    data = io.BytesIO()
    rows = [str(number) for number in range(20_000)]
    parquet.write_table(arrow.table({"a": range(20_000), "b": rows}), data, row_group_size=7000)
    store.objects["in", "data/x.parquet"] = data.getvalue()
    store.objects["in", "data/y.csv"] = b"1,y\n"
    store.objects["in", "data/z.parquet"] = b"PAR1 nonsense"

    ended = await job.run(make_spec(content_type="text/csv"), Container(upper))

    assert ended == RunnerEnded(error="ClientError")
    outputs = store.outputs()
    lines = outputs["results/x.parquet.out"].splitlines()
    assert (len(lines), lines[19_999]) == (20_000, b'19999,"19999"')
    assert outputs["results/y.csv.out"] == b"1,Y\n"
    assert outputs.keys() == {"results/x.parquet.out", "results/y.csv.out"}


async def test_a_pipeline_passes_answers_on(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"a\nb"

    async def twice(payload: bytes) -> bytes:
        return payload * 2

    first, second = Container(upper), Container(twice)
    spec = make_spec(content_type="text/csv", accept="text/plain")
    runner = job.start(spec, first, second, is_pipeline=True)

    assert await asyncio.wait_for(runner.run(), 30) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"A\nBA\nB\n"}
    assert first.headers == [b"Content-Type: text/csv\r\n"]
    assert second.headers == [b"Content-Type: text/upper\r\nAccept: text/plain\r\n"]


async def test_a_pipeline_ends_at_an_error(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"a"

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b"no"

    second = Container(upper)
    runner = job.start(make_spec(), Container(refuse), second, is_pipeline=True)

    assert await asyncio.wait_for(runner.run(), 30) == RunnerEnded(error="ClientError")
    assert second.payloads == []


async def test_listing_waits_for_the_objects_before(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "LISTED_AHEAD", 5)
    for number in range(40):
        store.objects["in", f"data/{number:03}"] = b"x"
    gate = asyncio.Event()

    async def hold(payload: bytes) -> bytes:
        await gate.wait()
        return payload

    runner = job.start(make_spec(), Container(hold))
    running = asyncio.create_task(runner.run())
    for _ in range(100):
        await asyncio.sleep(0)
    known = job.of(Progress)[-1]
    assert (known.objects_known < 25, known.is_listed) == (True, False)

    gate.set()
    assert await asyncio.wait_for(running, 30) == RunnerEnded()
    assert len(store.outputs()) == 40


async def test_a_listing_that_breaks_off_fails_the_job(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "LISTED_AHEAD", 2)
    for number in range(20):
        store.objects["in", f"data/{number:03}"] = b"x"
    list_page = store.list_page

    async def break_off(bucket: str, prefix: str, after: str = "") -> object:
        if after:
            raise S3Error("AccessDenied", 403, "Access Denied")
        return await list_page(bucket, prefix, after)

    store.list_page = break_off  # type: ignore[method-assign,assignment]
    ended = await job.run(make_spec(), Container(upper))
    assert ended.error == "ClientError"
    assert "Access Denied" in ended.message


async def test_a_listing_that_goes_wrong_ends_the_runner(
    job: TransformRun, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go_wrong(bucket: str, prefix: str, after: str = "") -> object:
        raise ValueError("S3 left out Size.")

    monkeypatch.setattr(store, "list_page", go_wrong)
    with pytest.raises(ValueError, match="Size"):
        await job.run(make_spec(), Container(upper))


async def test_the_window_bounds_the_number_of_batches(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"1\n" * 12_000
    gate = asyncio.Event()

    async def hold(payload: bytes) -> bytes:
        await gate.wait()
        return payload

    spec = make_spec(batch_strategy="SingleRecord", max_concurrent=4)
    runner = job.start(spec, Container(hold))
    running = asyncio.create_task(runner.run())
    for _ in range(1000):
        await asyncio.sleep(0)
    assert 100 < len(asyncio.all_tasks()) < 64 * 2**20 // 8192 + 50

    gate.set()
    assert await asyncio.wait_for(running, 60) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"1\n" * 12_000}
