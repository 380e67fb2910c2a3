import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.jobs.data import checkpoints
from sagehen.agent.jobs.data.store_writes import is_being_written, is_only_appended_to
from sagehen.base.errors import Invalid, Unavailable
from sagehen.base.home import Home
from sagehen.frame.job_specs import CheckpointSpec, JobOutcome, StopRequest
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.records import Attributes, ListingQuery
from support.clock import SteppedClock
from support.jobs import LOOK_SECONDS, JobsUnderTest, MakeSpec

Put = Callable[[str, bytes], None]
CHECKPOINT = CheckpointSpec(s3_uri="s3://bucket/ck/count")
WAITS = "trap 'exit 0' TERM; touch $TMPDIR/ready; while :; do sleep 0.02; done"
CD = "cd $SAGEMAKER_BASE_DIR/checkpoints"


def stored(objects: ObjectStore, bucket: str = "bucket") -> dict[str, bytes]:
    """What is kept of the checkpoints, by path."""
    found = {}
    for one in objects.list_page(bucket, ListingQuery(prefix="ck/count/")).objects:
        with objects.open(bucket, one.key) as opened:
            found[one.key.removeprefix("ck/count/")] = b"".join(opened.chunks())
    return found


class Running:
    """A job that waits, whose checkpoints are written by the test."""

    def __init__(self, jobs: JobsUnderTest, clock: SteppedClock, folder: Path) -> None:
        self.jobs = jobs
        self.folder = folder
        self._clock = clock

    async def look(self, times: int = 1, pause: float = LOOK_SECONDS) -> None:
        """Let the agent look at them so many times."""
        for _ in range(times):
            await self._clock.sleeper(pause)
            self._clock.advance(pause)
        await self._clock.sleeper(LOOK_SECONDS)


@pytest.fixture
async def running(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock, base: Path
) -> Running:
    jobs.jobs.put(make_spec(WAITS, checkpoint=CHECKPOINT))
    while not (base.parent / "tmp" / "ready").exists():
        await jobs.turn()
    return Running(jobs, clock, base / "checkpoints")


async def test_what_one_attempt_kept_the_next_one_finds(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore, home: Home
) -> None:
    await jobs.run(make_spec(f"{CD}; mkdir a; echo one > a/b; exit 1", checkpoint=CHECKPOINT))
    assert stored(objects) == {"a/b": b"one\n"}
    script = f"{CD}; cat a/b; echo two > a/b; echo three > c"
    await jobs.run(make_spec(script, checkpoint=CHECKPOINT, attempt_id="j-2"))
    assert (home.logs / "training-jobs" / "count" / "algo-1.log").read_text() == "one\n"
    assert stored(objects) == {"a/b": b"two\n", "c": b"three\n"}


async def test_what_is_found_is_as_old_as_what_was_kept(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore, home: Home, clock: SteppedClock
) -> None:
    for key in ("ck/count/b", "ck/count/a"):
        clock.advance(10)
        draft = objects.draft()
        draft.write(b"x")
        objects.put("bucket", key, draft, Attributes())
    kept = [objects.head("bucket", f"ck/count/{name}").modified_at for name in "ab"]
    assert kept[0] > kept[1]
    await jobs.run(make_spec(f"{CD}; stat -c %Y a b", checkpoint=CHECKPOINT))
    log = home.job_log("count") / "algo-1.log"
    assert log.read_text().split() == [str(int(one)) for one in kept]


@pytest.mark.parametrize("outcome", [JobOutcome.STOPPED, JobOutcome.INTERRUPTED])
async def test_they_are_kept_however_it_ends(
    running: Running, objects: ObjectStore, outcome: JobOutcome
) -> None:
    (running.folder / "x").write_text("x")
    running.jobs.jobs.stop("j-1", StopRequest(outcome=outcome))
    assert (await running.jobs.ends()).outcome is outcome
    assert stored(objects) == {"x": b"x"}


async def test_they_are_kept_while_it_runs(running: Running, objects: ObjectStore) -> None:
    (running.folder / "x").write_text("1")
    await running.look(2)
    assert stored(objects) == {"x": b"1"}
    (running.folder / "x").write_text("22")
    (running.folder / "deep").mkdir()
    (running.folder / "deep" / "y").write_text("3")
    await running.look(2)
    assert stored(objects) == {"x": b"22", "deep/y": b"3"}
    (running.folder / "x").unlink()
    await running.look()
    assert stored(objects) == {"deep/y": b"3"}


async def test_what_does_not_change_is_not_stored_again(
    running: Running, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (running.folder / "x").write_text("1")
    await running.look(2)
    puts: list[Any] = []
    monkeypatch.setattr(objects, "put", lambda *given: puts.append(given))
    await running.look(3)
    running.jobs.jobs.stop("j-1", StopRequest())
    await running.jobs.ends()
    assert puts == []


async def test_a_file_that_is_being_written_waits_until_it_is_closed(
    running: Running, objects: ObjectStore
) -> None:
    with (running.folder / "x").open("w") as file:
        file.write("half")
        file.flush()
        await running.look(8)
        assert stored(objects) == {}
        file.write(" and half")
    await running.look(2)
    assert stored(objects) == {"x": b"half and half"}


async def test_a_file_that_is_added_to_all_the_time_is_kept_now_and_then(
    running: Running, objects: ObjectStore
) -> None:
    seen = []
    for number in range(10):
        with (running.folder / "log").open("a") as file:
            file.write(str(number))
        await running.look()
        seen.append(stored(objects).get("log"))
    assert seen[3] is None
    assert seen[4] == b"01234"
    assert seen[9] == b"0123456789"


async def test_a_file_that_is_kept_open_to_be_added_to_is_kept_as_far_as_it_is(
    running: Running, objects: ObjectStore
) -> None:
    with (running.folder / "log").open("a") as file:
        file.write("one")
        file.flush()
        await running.look(5)
        assert stored(objects) == {"log": b"one"}
        file.write(" two")
        file.flush()
        await running.look(5)
        assert stored(objects) == {"log": b"one two"}


async def test_a_file_that_is_always_open_keeps_no_others_there(
    running: Running, objects: ObjectStore
) -> None:
    (running.folder / "step-1").write_text("1")
    await running.look(2)
    (running.folder / "step-1").unlink()
    with (running.folder / "events").open("w") as file:
        file.write("1")
        file.flush()
        await running.look(4)
        assert stored(objects) == {"step-1": b"1"}
        await running.look()
        assert stored(objects) == {}


async def test_a_file_that_is_moved_into_place_is_whole(
    running: Running, objects: ObjectStore
) -> None:
    seen = []
    for number in range(4):
        (running.folder.parent / "new").write_text(str(number))
        (running.folder.parent / "new").rename(running.folder / "x")
        await running.look()
        seen.append(stored(objects).get("x"))
    assert seen == [None, b"1", b"2", b"3"]


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    running: Running, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = running.folder / "x"
    path.write_text("first")
    draft, changes = objects.draft, iter(["second, longer"])

    def draft_later() -> Any:
        for text in changes:
            path.write_text(text)
        return draft()

    monkeypatch.setattr(objects, "draft", draft_later)
    await running.look(2)
    assert stored(objects) == {}
    await running.look(2)
    assert stored(objects) == {"x": b"second, longer"}


async def test_nothing_is_deleted_there_before_what_is_new_has_arrived(
    running: Running, objects: ObjectStore
) -> None:
    (running.folder / "step-1").write_text("1")
    await running.look(2)
    (running.folder / "step-2").write_text("2")
    (running.folder / "step-1").unlink()
    await running.look()
    assert stored(objects) == {"step-1": b"1"}
    await running.look()
    assert stored(objects) == {"step-2": b"2"}


async def test_nothing_is_deleted_there_because_the_whole_folder_is_gone(
    running: Running, objects: ObjectStore
) -> None:
    (running.folder / "step-1").write_text("1")
    await running.look(2)
    assert stored(objects) == {"step-1": b"1"}
    running.folder.rename(running.folder.with_name("elsewhere"))
    await running.look(2)
    assert stored(objects) == {"step-1": b"1"}
    running.folder.mkdir()
    (running.folder / "step-2").write_text("2")
    await running.look(3)
    assert stored(objects) == {"step-2": b"2"}
    running.folder.rename(running.folder.with_name("elsewhere too"))
    running.jobs.jobs.stop("j-1", StopRequest())
    await running.jobs.ends()
    assert stored(objects) == {"step-2": b"2"}


async def test_older_files_are_stored_before_newer_ones(
    running: Running, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    put = objects.put

    def noting(bucket: str, key: str, *rest: Any) -> Any:
        order.append(key.rpartition("/")[2])
        return put(bucket, key, *rest)

    monkeypatch.setattr(objects, "put", noting)
    for second, name in enumerate("cab", 1_700_000_000):
        (running.folder / name).write_text(name)
        os.utime(running.folder / name, (second, second))
    running.jobs.jobs.stop("j-1", StopRequest())
    await running.jobs.ends()
    assert order == ["c", "a", "b"]


async def test_a_store_that_is_away_does_not_end_the_job(
    running: Running, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock
) -> None:
    draft, away = objects.draft, True

    def draft_later() -> Any:
        if away:
            raise Unavailable("It is away.")
        return draft()

    monkeypatch.setattr(objects, "draft", draft_later)
    (running.folder / "x").write_text("x")
    for times in (1, 1, 2, 4, 8, 16):
        pause = times * LOOK_SECONDS
        await clock.sleeper(pause)
        clock.advance(pause)
    await clock.sleeper(60)
    away = False
    clock.advance(60)
    await clock.sleeper(LOOK_SECONDS)
    assert stored(objects) == {"x": b"x"}


async def test_interrupted_with_the_store_away_it_goes_on_from_what_there_is(
    running: Running, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock
) -> None:
    def fail() -> None:
        raise Unavailable("It is away.")

    monkeypatch.setattr(objects, "draft", fail)
    (running.folder / "x").write_text("x")
    running.jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED))
    await clock.sleeper(0.1)
    clock.advance(3600)
    assert (await running.jobs.ends()).outcome is JobOutcome.INTERRUPTED


async def test_a_bucket_that_is_gone_in_the_end_fails_the_job(
    running: Running, objects: ObjectStore
) -> None:
    (running.folder / "x").write_text("x")
    objects.delete_bucket("bucket")
    running.jobs.jobs.stop("j-1", StopRequest())
    report = await running.jobs.ends()
    assert report.outcome is JobOutcome.FAILED
    assert "NoSuchBucket" in str(report.failure_reason)


async def test_a_link_to_a_checkpoint_is_one(running: Running, objects: ObjectStore) -> None:
    (running.folder / "step-1").write_text("1")
    (running.folder / "last").symlink_to("step-1")
    (running.folder / "mounted").symlink_to("/opt/ml/checkpoints/step-1")
    (running.folder.parent / "secret").write_text("s")
    (running.folder / "out").symlink_to("../secret")
    (running.folder / "loop").symlink_to(".")
    running.jobs.jobs.stop("j-1", StopRequest())
    await running.jobs.ends()
    assert stored(objects) == {"step-1": b"1", "last": b"1", "mounted": b"1"}


async def test_a_name_that_no_key_can_have_is_left_out(
    running: Running, objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    (running.folder / "\udcff").write_text("x")
    (running.folder / "ok").write_text("x")
    running.jobs.jobs.stop("j-1", StopRequest())
    assert (await running.jobs.ends()).outcome is JobOutcome.STOPPED
    assert stored(objects) == {"ok": b"x"}
    assert "A checkpoint is skipped" in caplog.text


async def test_another_folder_may_hold_them(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    checkpoint = CheckpointSpec(s3_uri="s3://bucket/ck/count/", local_path="/opt/ml/my/own/")
    await jobs.run(make_spec("echo x > $SAGEMAKER_BASE_DIR/my/own/x", checkpoint=checkpoint))
    assert stored(objects) == {"x": b"x\n"}


async def test_hosts_keep_theirs_in_one_place_and_all_find_all(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore, home: Home
) -> None:
    name = "N=$(basename $(dirname $SAGEMAKER_BASE_DIR))"
    spec = {"checkpoint": CHECKPOINT, "instance_count": 2}
    await jobs.run(make_spec(f"{name}; {CD}; echo $N > $N; echo $N > both", **spec))
    assert stored(objects).keys() == {"algo-1", "algo-2", "both"}
    script = f"{name}; {CD}; echo $(ls); rm -f $N"
    await jobs.run(make_spec(script, attempt_id="j-2", **spec))
    for host in ("algo-1", "algo-2"):
        log = home.logs / "training-jobs" / "count" / f"{host}.log"
        assert log.read_text() == "algo-1 algo-2 both\n"
    assert stored(objects).keys() == {"both"}


@pytest.mark.parametrize("key", ["ck/count/../x", "ck/count/a//b"])
async def test_a_key_that_cannot_be_a_file_fails_the_restore(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, key: str
) -> None:
    put_object(key, b"x")
    report = await jobs.run(make_spec(checkpoint=CHECKPOINT))
    assert report.outcome is JobOutcome.FAILED
    assert "cannot be a file" in str(report.failure_reason)


async def test_without_their_bucket_a_job_does_not_start(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec(checkpoint=CheckpointSpec(s3_uri="s3://nobucket/x")))
    assert report.outcome is JobOutcome.FAILED
    assert "NoSuchBucket (404)" in str(report.failure_reason)


@pytest.mark.parametrize(
    "path",
    ["/tmp/ck", "/opt/ml", "/opt/ml/", "/opt/ml/model", "/opt/ml/input/x", "/opt/ml/../x", "x"],
)
async def test_a_place_for_checkpoints_that_is_not_theirs_is_refused(
    jobs: JobsUnderTest, make_spec: MakeSpec, path: str
) -> None:
    with pytest.raises(Invalid, match="LocalPath"):
        jobs.jobs.put(make_spec(checkpoint=CheckpointSpec(s3_uri="s3://b/x", local_path=path)))


def test_the_kernel_tells_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    assert not is_being_written(path)
    with path.open("a"):
        assert is_being_written(path)
    with path.open("rb"):
        assert not is_being_written(path)
    assert not is_being_written(tmp_path / "none")


def test_the_kernel_tells_who_only_appends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    assert not is_only_appended_to(path)
    with path.open("a"):
        assert is_only_appended_to(path)
        with path.open("r"):
            assert is_only_appended_to(path)
        with path.open("r+"):
            assert not is_only_appended_to(path)


async def test_many_deletions_go_in_pieces(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    put_object: Put,
) -> None:
    monkeypatch.setattr(checkpoints, "DELETE_BATCH_KEYS", 2)
    for name in "abcde":
        put_object(f"ck/count/{name}", b"x")
    await jobs.run(make_spec(f"{CD}; rm a b c d e", checkpoint=CHECKPOINT))
    assert stored(objects) == {}


@pytest.mark.parametrize(
    ("older", "newer"), [("last", "last/shard"), ("last/shard", "last"), ("a", "a/b/c")]
)
async def test_of_a_file_that_became_a_folder_the_newer_is_restored(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, home: Home, older: str, newer: str
) -> None:
    """An attempt was ended between the new one's arrival and the old one's deletion."""
    put_object(f"ck/count/{older}", b"old\n")
    put_object("ck/count/other", b"other\n")
    put_object(f"ck/count/{newer}", b"new\n")
    script = f"{CD}; cat {newer} other"
    report = await jobs.run(make_spec(script, checkpoint=CHECKPOINT))
    assert (report.outcome, report.failure_reason) == (JobOutcome.COMPLETED, None)
    log = home.logs / "training-jobs" / "count" / "algo-1.log"
    assert log.read_text() == "new\nother\n"
