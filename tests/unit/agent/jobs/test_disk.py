"""A job and the disk that it shares with all others, when that is full."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.agent.jobs import disk
from sagehen.agent.jobs.data import data
from sagehen.agent.jobs.data.transfers import DISK_FULL_PAUSE_SECONDS, DISK_FULL_RETRY_SECONDS
from sagehen.agent.jobs.disk import DiskSpace
from sagehen.base.errors import StateFull
from sagehen.base.home import Home
from sagehen.frame.job_specs import (
    ChannelSpec,
    CheckpointSpec,
    JobOutcome,
    JobPhase,
    JobReport,
    StopRequest,
)
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import StorageFull
from sagehen.services.s3.storage.records import Attributes, ListingQuery
from support.clock import SteppedClock
from support.jobs import JobsUnderTest, MakeSpec

SIZE = 100 * 2**20
FULL, LOW_BYTES = DiskSpace(free=1000, size=SIZE), 6 * 2**20
WRITES = "echo weights > $SAGEMAKER_BASE_DIR/model/weights.bin"
SetDiskSpace = Callable[[DiskSpace], None]


@pytest.fixture
def set_room(monkeypatch: pytest.MonkeyPatch) -> SetDiskSpace:
    """Says how much room there is on the disk from now on."""

    def set_to(room: DiskSpace) -> None:
        for module in (data, disk):
            monkeypatch.setattr(module, "read_disk_space", lambda _: room)

    return set_to


@pytest.fixture
def full_store(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The store takes nothing, until this is called."""
    draft = objects.draft

    def refuse() -> None:
        raise StorageFull("The disk that holds the objects is full.")

    monkeypatch.setattr(objects, "draft", refuse)
    return lambda: monkeypatch.setattr(objects, "draft", draft)


@pytest.fixture
def there(jobs: JobsUnderTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the job's folder was, whenever its report was written."""
    found: list[bool] = []
    reports = jobs.jobs._reports
    save, folder = reports.save, home.jobs / "j-1"

    def look_and_save(report: JobReport) -> None:
        found.append(folder.exists())
        save(report)

    monkeypatch.setattr(reports, "save", look_and_save)
    return found


def keys(objects: ObjectStore) -> list[str]:
    return [one.key for one in objects.list_page("bucket", ListingQuery()).objects]


def put(objects: ObjectStore, key: str) -> None:
    draft = objects.draft()
    draft.write(b"data")
    objects.put("bucket", key, draft, Attributes())


async def uploads(jobs: JobsUnderTest) -> None:
    await jobs.reports(lambda report: report.phases[-1].phase is JobPhase.UPLOADING)


async def is_so(look: Callable[[], bool], jobs: JobsUnderTest) -> None:
    async with asyncio.timeout(120):
        while not look():
            await jobs.turn()


@pytest.mark.parametrize(
    ("free", "size", "low"),
    [(12, 250, True), (13, 250, False), (63, 10_000, True), (64, 10_000, False)],
)
def test_little_room_is_a_share_of_a_small_disk(free: int, size: int, low: bool) -> None:
    assert DiskSpace(free * 2**20, size * 2**20).is_low is low


async def test_who_fills_the_disk_is_ended_and_its_checkpoints_are_kept(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    clock: SteppedClock,
    base: Path,
    set_room: SetDiskSpace,
) -> None:
    big = f"head -c {LOW_BYTES} /dev/zero > $SAGEMAKER_BASE_DIR/output/data/zeros"
    script = f"cd $SAGEMAKER_BASE_DIR; echo 1 > checkpoints/1; {big}; touch done; exec sleep 1000"
    jobs.jobs.put(make_spec("touch $SAGEMAKER_BASE_DIR/done; exec sleep 1000", attempt_id="j-2"))
    kept = CheckpointSpec(s3_uri="s3://bucket/kept")
    jobs.jobs.put(make_spec(script, checkpoint=kept))
    await is_so((base / "done").exists, jobs)
    await jobs.trains("j-2")
    set_room(FULL)
    await clock.sleeper(disk.DISK_PAUSE_SECONDS)
    clock.advance(disk.DISK_PAUSE_SECONDS)
    report = await jobs.ends()
    assert report.outcome is JobOutcome.FAILED
    assert str(report.failure_reason).startswith(
        "ClientError: The disk that holds training jobs has too little room: 1000 of its 104857600"
    )
    assert "VolumeSizeInGB" in str(report.failure_reason)
    assert keys(objects) == ["kept/1"]
    # The end of another job would have made no room.
    assert next(one for one in jobs.jobs.list().jobs if one.attempt_id == "j-2").outcome is None


async def test_the_folder_is_gone_before_the_report_is_written_where_room_is_little(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    there: list[bool],
    set_room: SetDiskSpace,
) -> None:
    set_room(FULL)
    report = await jobs.run(make_spec(WRITES))
    assert (report.outcome, report.artifacts) == (JobOutcome.COMPLETED, ("model.tar.gz",))
    assert there == [False]


@pytest.mark.parametrize("links", [False, True])
async def test_what_is_not_uploaded_makes_room_for_what_is(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_room: SetDiskSpace,
    links: bool,
) -> None:
    put(objects, "in/a")
    set_room(FULL)
    draft = objects.draft
    left: list[list[str]] = []

    def look_and_draft() -> object:
        folders = {"data": base / "input" / "data", "tmp": base.parent / "tmp"}
        left.append([name for name, folder in folders.items() if folder.exists()])
        return draft()

    channel = ChannelSpec(name="train", s3_uri="s3://bucket/in/")
    link = "ln -s /opt/ml/input/data/train/a $SAGEMAKER_BASE_DIR/model/a" if links else "true"
    monkeypatch.setattr(objects, "draft", look_and_draft)
    report = await jobs.run(make_spec(f"{WRITES}; {link}", channels=(channel,)))
    assert report.outcome is JobOutcome.COMPLETED
    assert left == [["data"] if links else []]


async def test_room_that_comes_is_waited_for(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    clock: SteppedClock,
    full_store: Callable[[], None],
) -> None:
    jobs.jobs.put(make_spec(WRITES))
    await uploads(jobs)
    await clock.sleeper(DISK_FULL_PAUSE_SECONDS)
    full_store()
    clock.advance(DISK_FULL_PAUSE_SECONDS)
    assert (await jobs.ends()).outcome is JobOutcome.COMPLETED
    assert keys(objects) == ["out/count/output/model.tar.gz"]


@pytest.mark.usefixtures("full_store")
async def test_room_that_does_not_come_fails_the_attempt_after_a_minute(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock, there: list[bool]
) -> None:
    jobs.jobs.put(make_spec(WRITES))
    await uploads(jobs)
    await clock.sleeper(DISK_FULL_PAUSE_SECONDS)
    clock.advance(DISK_FULL_RETRY_SECONDS)
    report = await jobs.ends()
    assert (report.outcome, report.artifacts, there) == (JobOutcome.FAILED, (), [False])
    assert "Results that were not yet stored are lost. (The disk that holds the objects" in str(
        report.failure_reason
    )


@pytest.mark.usefixtures("full_store")
async def test_a_stop_ends_the_wait_for_room(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock
) -> None:
    jobs.jobs.put(make_spec(WRITES))
    await uploads(jobs)
    await clock.sleeper(DISK_FULL_PAUSE_SECONDS)
    jobs.jobs.stop("j-1", StopRequest())
    report = await jobs.ends()
    assert report.outcome is JobOutcome.FAILED
    assert "The job was stopped and waited no longer" in str(report.failure_reason)


@pytest.mark.usefixtures("full_store")
async def test_a_shutdown_does_not_wait_for_room(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock
) -> None:
    jobs.jobs.put(make_spec(WRITES))
    await uploads(jobs)
    await clock.sleeper(DISK_FULL_PAUSE_SECONDS)
    async with asyncio.timeout(120):
        await jobs.jobs.close()
    assert jobs.jobs.list().jobs[0].outcome is JobOutcome.FAILED


@pytest.mark.usefixtures("full_store")
async def test_who_has_failed_does_not_wait_for_room(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec(f"{WRITES}; echo no space; exit 1"))
    assert (report.outcome, report.exit_code) == (JobOutcome.FAILED, 1)
    said = str(report.failure_reason)
    assert said.startswith("AlgorithmError: no space, exit code: 1 ClientError: The disk")


async def test_a_state_without_room_is_as_a_store_without(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise StateFull("The disk that holds the state is full.")

    monkeypatch.setattr(objects, "put", refuse)
    report = await jobs.run(make_spec(f"{WRITES}; exit 1"))
    assert "The disk that holds the state is full" in str(report.failure_reason)
