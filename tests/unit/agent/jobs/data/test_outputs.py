import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.jobs import disk_allowance as allowance
from sagehen.agent.jobs.data import outputs
from sagehen.agent.jobs.data.outputs import collect, write_archive
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home
from sagehen.frame.job_specs import CheckpointSpec, JobOutcome, JobPhase, StopRequest
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.records import ListingQuery
from support.clock import SteppedClock
from support.jobs import JobsUnderTest, MakeSpec
from unit.agent.jobs.test_job import printed

WRITES = """
    cd $SAGEMAKER_BASE_DIR
    echo weights > model/weights.bin; mkdir model/deep; echo deep > model/deep/x
    echo result > output/data/result.csv
"""
MODEL, OUTPUT = "out/count/output/model.tar.gz", "out/count/output/output.tar.gz"


def read(objects: ObjectStore, key: str) -> bytes:
    with objects.open("bucket", key) as opened:
        return b"".join(opened.chunks())


def keys(objects: ObjectStore, prefix: str = "") -> list[str]:
    return [one.key for one in objects.list_page("bucket", ListingQuery(prefix=prefix)).objects]


def unpacked(data: bytes) -> dict[str, bytes | str | None]:
    """Files with their bytes, links with what they say, folders with None."""
    found: dict[str, bytes | str | None] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            found[member.name] = file.read() if file else member.linkname or None
    return found


async def test_what_a_job_leaves_becomes_archives(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    report = await jobs.run(make_spec(WRITES))
    assert report.outcome is JobOutcome.COMPLETED
    assert report.artifacts == ("model.tar.gz", "output.tar.gz")
    assert unpacked(read(objects, MODEL)) == {
        "deep": None,
        "deep/x": b"deep\n",
        "weights.bin": b"weights\n",
    }
    assert unpacked(read(objects, OUTPUT)) == {"result.csv": b"result\n"}


async def test_nothing_becomes_of_nothing(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    report = await jobs.run(make_spec("mkdir $SAGEMAKER_BASE_DIR/model/empty"))
    assert (report.outcome, report.artifacts) == (JobOutcome.COMPLETED, ())
    assert keys(objects) == []


async def test_uncompressed_they_are_objects_of_their_own(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    spec = make_spec(WRITES, compress_output=False, output_uri="s3://bucket/out/")
    report = await jobs.run(spec)
    assert report.artifacts == ("model/", "data/")
    assert keys(objects) == [
        "out/count/output/data/result.csv",
        "out/count/output/model/deep/x",
        "out/count/output/model/weights.bin",
    ]
    assert read(objects, "out/count/output/model/deep/x") == b"deep\n"


async def test_a_failed_job_keeps_what_it_wrote(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    report = await jobs.run(make_spec(f"{WRITES} exit 1"))
    assert report.outcome is JobOutcome.FAILED
    assert report.artifacts == ("model.tar.gz", "output.tar.gz")


async def test_hosts_files_are_put_together_and_the_first_wins(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    script = """
        H=$(sed 's/.*"current_host": "\\([^"]*\\)".*/\\1/' $SAGEMAKER_BASE_DIR/input/config/resourceconfig.json)
        cd $SAGEMAKER_BASE_DIR/model; echo $H > both; echo $H > $H
        if [ $H = algo-1 ]; then echo file > name; else mkdir name; echo lost > name/x; fi
    """  # noqa: E501
    report = await jobs.run(make_spec(script, instance_count=2))
    assert report.outcome is JobOutcome.COMPLETED
    assert unpacked(read(objects, MODEL)) == {
        "algo-1": b"algo-1\n",
        "algo-2": b"algo-2\n",
        "both": b"algo-1\n",
        "name": b"file\n",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ml" / "model").mkdir(parents=True)
    return tmp_path / "ml" / "model"


def archive(folder: Path) -> bytes:
    target = io.BytesIO()
    write_archive(collect([(folder, folder.parent)]), target)
    return target.getvalue()


def test_equal_files_make_equal_archives(folder: Path) -> None:
    for name in ("b", "a"):
        (folder / name).write_text(name)
    first = archive(folder)
    os.utime(folder / "a", (1, 1))
    assert archive(folder) == first
    (folder / "a").write_text("c")
    assert archive(folder) != first


def test_links_lead_somewhere_in_any_container(folder: Path) -> None:
    (folder / "file").write_text("x")
    (folder / "sub").mkdir()
    (folder / "inside").symlink_to("file")
    (folder / "sub" / "up").symlink_to("../file")
    (folder / "to-folder").symlink_to("sub")
    (folder / "absolute").symlink_to(folder / "file")
    (folder / "mounted").symlink_to("/opt/ml/model/file")
    (folder.parent / "outside").write_text("y")
    (folder / "out").symlink_to("../outside")
    (folder / "gone").symlink_to("nowhere")
    (folder / "out-folder").symlink_to("..")
    os.mkfifo(folder / "pipe")
    assert unpacked(archive(folder)) == {
        "absolute": b"x",
        "file": b"x",
        "inside": "file",
        "mounted": b"x",
        "out": b"y",
        "sub": None,
        "sub/up": "../file",
        "to-folder": "sub",
    }


def test_names_of_any_kind_are_kept(folder: Path) -> None:
    names = ["ü" * 100, "n" * 200, "with space", os.fsdecode(b"\xff")]
    for name in names:
        (folder / name).write_bytes(b"x")
    (folder / "program").write_text("")
    (folder / "program").chmod(0o700)
    assert set(unpacked(archive(folder))) == {*names, "program"}
    with tarfile.open(fileobj=io.BytesIO(archive(folder)), mode="r:gz") as tar:
        assert tar.getmember("program").mode == 0o755


@pytest.mark.parametrize("uri", ["s3://nobucket/out", "s3://nobucket"])
async def test_outputs_that_have_no_bucket_fail_the_job(
    jobs: JobsUnderTest, make_spec: MakeSpec, uri: str
) -> None:
    report = await jobs.run(make_spec(WRITES, output_uri=uri))
    assert report.outcome is JobOutcome.FAILED
    assert str(report.failure_reason).startswith(
        "ClientError: Artifact upload failed:NoSuchBucket (404): The specified bucket does not"
    )
    report = await jobs.run(make_spec(f"{WRITES} exit 1", output_uri=uri, attempt_id="j-2"))
    assert str(report.failure_reason).startswith("AlgorithmError: ")


async def test_a_name_that_no_key_can_have_fails_the_job(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    script = "touch $SAGEMAKER_BASE_DIR/model/$(printf '\\377') $SAGEMAKER_BASE_DIR/model/a"
    report = await jobs.run(make_spec(script, compress_output=False))
    assert report.outcome is JobOutcome.FAILED
    assert "not UTF-8" in str(report.failure_reason)
    assert keys(objects) == []


async def test_outputs_wait_for_a_store_that_is_away(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put, away = objects.put, iter(range(3))

    def put_later(*given: Any) -> Any:
        for _ in away:
            raise Unavailable("It is away.")
        return put(*given)

    monkeypatch.setattr(objects, "put", put_later)
    jobs.jobs.put(make_spec(WRITES))
    for wait in (0.1, 0.2, 0.4):
        await clock.sleeper(wait)
        assert jobs.jobs.list().jobs[0].phases[-1].phase is JobPhase.UPLOADING
        clock.advance(wait)
    assert (await jobs.ends()).outcome is JobOutcome.COMPLETED
    assert keys(objects) == [MODEL, OUTPUT]


async def test_outputs_that_find_no_store_lose_the_attempt(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("It is away.")

    monkeypatch.setattr(objects, "put", fail)
    jobs.jobs.put(make_spec(WRITES))
    await clock.sleeper(0.1)
    clock.advance(3600)
    report = await jobs.ends()
    assert (report.outcome, report.artifacts) == (JobOutcome.LOST, ())
    assert str(report.failure_reason).startswith("InternalServerError: ")


class TestToldToEnd:
    """A store that is away is waited for `job_stop_patience_seconds`, and no longer."""

    @pytest.fixture(autouse=True)
    def away(self, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise Unavailable("It is away.")

        monkeypatch.setattr(objects, "put", fail)

    async def wait_for_store(self, clock: SteppedClock) -> float:
        """Have time go by for as long as it is tried again; how long."""
        began, pause = clock.monotonic(), 0.1
        while clock.monotonic() - began + pause <= 120:
            await clock.sleeper(pause)
            clock.advance(pause)
            pause = min(2 * pause, 5.0)
        return clock.monotonic() - began

    async def test_while_it_runs(
        self, jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
    ) -> None:
        script = f"trap 'exit 0' TERM; {WRITES} echo ready; while :; do sleep 0.02; done"
        jobs.jobs.put(make_spec(script))
        await printed(home, "ready")
        jobs.jobs.stop("j-1", StopRequest())
        await self.wait_for_store(clock)
        report = await jobs.ends()
        assert (report.outcome, report.artifacts) == (JobOutcome.LOST, ())
        assert str(report.failure_reason).endswith(
            "It is away. The job was stopped and waited no longer.)"
        )

    async def test_while_it_uploads(
        self, jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock
    ) -> None:
        jobs.jobs.put(make_spec(WRITES))
        await clock.sleeper(0.1)
        jobs.jobs.stop("j-1", StopRequest())
        assert 110 < await self.wait_for_store(clock) <= 120
        assert (await jobs.ends()).outcome is JobOutcome.LOST

    async def test_who_is_interrupted_goes_on_from_what_the_store_has(
        self, jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
    ) -> None:
        script = (
            "trap 'exit 0' TERM; echo 1 > $SAGEMAKER_BASE_DIR/checkpoints/1; echo ready;"
            "while :; do sleep 0.02; done"
        )
        jobs.jobs.put(make_spec(script, checkpoint=CheckpointSpec(s3_uri="s3://bucket/kept")))
        await printed(home, "ready")
        jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED))
        await self.wait_for_store(clock)
        assert (await jobs.ends()).outcome is JobOutcome.INTERRUPTED


async def test_more_output_than_the_volume_holds_is_not_kept(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "GIGABYTE", 1000)
    script = "head -c 2000 /dev/zero > $SAGEMAKER_BASE_DIR/output/data/zeros"
    report = await jobs.run(make_spec(script, volume_gb=1))
    assert report.outcome is JobOutcome.FAILED
    assert "has filled its disk: 2000 bytes, more than the 1 GB" in str(report.failure_reason)
    assert keys(objects) == []


async def test_a_job_that_fills_its_disk_is_ended_while_it_runs(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
    base: Path,
) -> None:
    monkeypatch.setattr(allowance, "GIGABYTE", 200_000)
    script = "head -c 300000 /dev/zero > $TMPDIR/zeros; touch $TMPDIR/done; exec sleep 1000"
    jobs.jobs.put(make_spec(script, volume_gb=1))
    done = base.parent / "tmp" / "done"
    while not done.exists():
        await jobs.turn()
    await clock.sleeper(10)
    clock.advance(10)
    report = await jobs.ends()
    assert report.outcome is JobOutcome.FAILED
    assert "has filled its disk" in str(report.failure_reason)
    assert keys(objects) == []


@pytest.mark.parametrize(
    "script",
    [
        "rm -rf $SAGEMAKER_BASE_DIR/model",
        "rm -rf $SAGEMAKER_BASE_DIR/output",
        "cd $SAGEMAKER_BASE_DIR; rm -rf model; echo x > model",
        "cd $SAGEMAKER_BASE_DIR; rm -rf model; ln -s model model",
    ],
)
async def test_a_job_that_takes_its_own_folders_away_has_left_nothing_there(
    jobs: JobsUnderTest, make_spec: MakeSpec, script: str
) -> None:
    report = await jobs.run(make_spec(script))
    assert (report.outcome, report.failure_reason) == (JobOutcome.COMPLETED, None)
    assert report.artifacts == ()


async def test_a_folder_that_cannot_be_read_is_the_jobs_own_fault(
    jobs: JobsUnderTest, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "model/x")

    monkeypatch.setattr(outputs, "collect", closed)
    report = await jobs.run(make_spec("true"))
    assert report.outcome is JobOutcome.FAILED
    assert report.failure_reason == (
        "ClientError: Artifact upload failed:Permission denied: 'model/x' "
        "(s3://bucket/out/count/output/)"
    )


DEEP = """cd $SAGEMAKER_BASE_DIR/{}; exec python3 -c "
import os
for _ in range(40):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('file', 'w').close()"
"""
"""Makes a file whose path is longer than the kernel takes."""


async def test_a_path_that_is_too_long_is_the_jobs_own_fault(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec(DEEP.format("model")))
    assert report.outcome is JobOutcome.FAILED
    assert "File name too long" in str(report.failure_reason)


async def test_checkpoints_whose_path_is_too_long_are_not_kept(
    jobs: JobsUnderTest, make_spec: MakeSpec, objects: ObjectStore
) -> None:
    checkpoint = CheckpointSpec(s3_uri="s3://bucket/kept")
    script = "touch $SAGEMAKER_BASE_DIR/checkpoints/one; " + DEEP.format("checkpoints")
    report = await jobs.run(make_spec(script, checkpoint=checkpoint))
    assert report.outcome is JobOutcome.COMPLETED
    assert keys(objects) == ["kept/one"]
