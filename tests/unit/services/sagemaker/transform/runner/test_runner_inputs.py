"""Whole jobs: their inputs, formats, pipelines and manifests."""

import asyncio
import io
import json
from collections.abc import Sequence

import pytest

from sagehen.frame.s3_client import S3Error
from sagehen.services.sagemaker.transform.runner import runner as runner_module
from sagehen.services.sagemaker.transform.runner_messages import (
    Capture,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerLog,
)
from support.transform_containers import upper
from support.transform_runs import Container, MemoryStore, TransformRun, make_spec


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
    ended = await asyncio.wait_for(runner.run(), 120)
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

    assert await asyncio.wait_for(running, 120) == RunnerEnded()
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

    assert await asyncio.wait_for(runner.run(), 120) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"A\nBA\nB\n"}
    assert first.headers == [b"Content-Type: text/csv\r\n"]
    assert second.headers == [b"Content-Type: text/upper\r\nAccept: text/plain\r\n"]


async def test_a_pipeline_ends_at_an_error(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"a"

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b"no"

    second = Container(upper)
    runner = job.start(make_spec(), Container(refuse), second, is_pipeline=True)

    assert await asyncio.wait_for(runner.run(), 120) == RunnerEnded(error="ClientError")
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
    assert await asyncio.wait_for(running, 120) == RunnerEnded()
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
