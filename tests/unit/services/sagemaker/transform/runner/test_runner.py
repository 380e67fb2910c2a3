"""Whole jobs, over objects in memory and containers that are functions."""

import asyncio
import gzip
import json

import pytest

from sagehen.http1.call import LocalAnswer
from sagehen.services.sagemaker.transform.runner import invocation, outputs
from sagehen.services.sagemaker.transform.runner.parameters import DEFAULTS
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerLog,
    RunnerSettings,
)
from support.transform_containers import upper
from support.transform_runs import Container, MemoryStore, TransformRun, make_spec


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


async def test_progress_is_seen_within_an_object(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"123456789\n" * 100
    seen: list[tuple[int, int | None]] = []

    async def note(payload: bytes) -> bytes:
        runner._reports.flush()
        last = job.of(Progress)[-1]
        seen.append((last.input_bytes, last.input_bytes_known))
        return payload

    spec = make_spec(batch_strategy="SingleRecord", max_concurrent=1)
    runner = job.start(spec, Container(note))
    async with asyncio.timeout(120):
        await runner.run()

    answered = [size for size, _ in seen]
    assert answered == sorted(answered)
    assert 400 <= answered[50] <= 500
    assert answered[-1] < 1000
    last = job.of(Progress)[-1]
    assert (last.input_bytes, last.input_bytes_known, last.records) == (1000, 1000, 100)
    assert job.of(Done)[-1].input_bytes == 1000


async def test_an_object_that_fails_on_its_way_counts_once(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"a\nb\nc\nbad\n"

    async def refuse(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"no") if b"bad" in payload else payload

    await job.run(make_spec(batch_strategy="SingleRecord"), Container(refuse))
    last = job.of(Progress)[-1]
    assert (last.input_bytes, last.input_bytes_known, last.records) == (10, 10, 0)


async def test_gzip_is_undone(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x.gz"] = gzip.compress(b"a\nb\n") + gzip.compress(b"c\n")
    await job.run(make_spec(compression="Gzip"), Container(upper))
    assert store.outputs() == {"results/x.gz.out": b"A\nB\nC\n"}


@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
async def test_progress_goes_on_within_one_object(
    job: TransformRun, store: MemoryStore, strategy: str
) -> None:
    stored = b"".join(b"%0999d\n" % number for number in range(20_000))
    store.objects["in", "data/x"] = stored

    async def answer(payload: bytes) -> bytes:
        await asyncio.sleep(0)
        return payload

    spec = make_spec(batch_strategy=strategy, max_concurrent=1, max_payload_mb=1)
    await job.run(spec, Container(answer))

    told = [(each.input_bytes, each.records) for each in job.of(Progress) if not each.objects]
    within = [(size, records) for size, records in told if 0 < records < 20_000]
    assert len(within) >= 5
    assert all(size == 1000 * records for size, records in within)
    assert [size for size, _ in told] == sorted(size for size, _ in told)
    assert job.of(Progress)[-1].input_bytes == len(stored)


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
    assert store.uploads == {}
    assert store.owners == {"upload-1": make_spec().job_id}


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
    assert store.owners.keys() == {"upload-1"}
