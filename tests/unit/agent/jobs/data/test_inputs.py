import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sagehen.agent.jobs import disk_allowance as allowance
from sagehen.agent.jobs.data import inputs, transfers
from sagehen.base.errors import Invalid, Unavailable
from sagehen.base.home import Home
from sagehen.frame.job_specs import ChannelSpec, JobOutcome, JobPhase, JobReport, StopRequest
from support.clock import SteppedClock
from support.jobs import JobsUnderTest, MakeSpec

Put = Callable[[str, bytes], None]
TREE = """
    cd $SAGEMAKER_BASE_DIR/input/data/train
    find . -type f | sort | while read f; do echo $f=$(cat $f); done
"""


async def seen(
    jobs: JobsUnderTest, make_spec: MakeSpec, hosts: int = 1, **channel: Any
) -> tuple[JobReport, list[list[str]]]:
    """The report, and what each host has found in its channel `train`."""
    spec = make_spec(
        TREE, channels=(ChannelSpec(name="train", **channel),), instance_count=hosts, volume_gb=1
    )
    report = await jobs.run(spec)
    logs = jobs.around.home.logs / "training-jobs" / "count"
    found = [logs / f"algo-{number}.log" for number in range(1, hosts + 1)]
    return report, [log.read_text().splitlines() if log.exists() else [] for log in found]


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("data/train/", ["./a.csv=a", "./deep/b.csv=b"]),
        ("data/train", ["./a.csv=a", "./deep/b.csv=b", "./train.txt=c", "./train=d"]),
        ("data/tra", ["./train.txt=c", "./train/a.csv=a", "./train/deep/b.csv=b"]),
        ("data/train/a.csv", ["./a.csv=a"]),
        ("", ["./data/train.txt=c", "./data/train/a.csv=a", "./data/train/deep/b.csv=b"]),
    ],
)
async def test_a_prefix_becomes_files(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, uri: str, names: list[str]
) -> None:
    put_object("data/train/a.csv", b"a")
    put_object("data/train/deep/b.csv", b"b")
    put_object("data/train.txt", b"c")
    put_object("data/train/shown/", b"")
    if uri == "data/train":
        put_object("data/train", b"d")
    report, found = await seen(jobs, make_spec, s3_uri=f"s3://bucket/{uri}")
    assert report.outcome is JobOutcome.COMPLETED, report.failure_reason
    assert sorted(found[0]) == sorted(names)


async def test_fast_file_mode_has_the_same_files(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    put_object("train/large", b"x" * 3_000_000)
    put_object("train/small", b"y")
    spec = make_spec(
        "cd $SAGEMAKER_BASE_DIR/input; wc -c < data/train/large; cat config/inputdataconfig.json",
        channels=(
            ChannelSpec(
                name="train",
                s3_uri="s3://bucket/train/",
                input_mode="FastFile",
                content_type="text/csv",
            ),
        ),
    )
    await jobs.run(spec)
    log = jobs.around.home.logs / "training-jobs" / "count" / "algo-1.log"
    size, said = log.read_text().split("\n", 1)
    assert size.strip() == "3000000"
    assert json.loads(said) == {
        "train": {
            "ContentType": "text/csv",
            "TrainingInputMode": "FastFile",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
    }


async def test_hosts_get_all_or_a_share(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    for name in "abcde":
        put_object(f"t/{name}", name.encode())
    _, found = await seen(jobs, make_spec, 2, s3_uri="s3://bucket/t/")
    assert [len(lines) for lines in found] == [5, 5]


async def test_shares_are_disjoint_and_shuffled_the_same_for_all(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    for name in "abcde":
        put_object(f"t/{name}", name.encode())
    sharded = {"s3_uri": "s3://bucket/t/", "distribution": "ShardedByS3Key"}
    _, found = await seen(jobs, make_spec, 2, **sharded)
    assert found == [["./a=a", "./c=c", "./e=e"], ["./b=b", "./d=d"]]


async def test_a_shuffled_share() -> None:
    channel = ChannelSpec(name="t", s3_uri="s3://b/", distribution="ShardedByS3Key", shuffle_seed=7)
    found = list("abcdefgh")
    shares = [inputs.share(found, channel, number, 3) for number in (1, 2, 3)]
    assert sorted(one for share in shares for one in share) == found
    assert shares[0] != list("adg")
    assert shares == [inputs.share(found, channel, number, 3) for number in (1, 2, 3)]


async def test_a_manifest_names_the_files(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    put_object("raw/x/1", b"one")
    put_object("raw/y", b"two")
    put_object("raw/unnamed", b"three")
    put_object("m", json.dumps([{"prefix": "s3://bucket/raw/"}, "x/1", "y"]).encode())
    _, found = await seen(jobs, make_spec, s3_uri="s3://bucket/m", data_type="ManifestFile")
    assert found == [["./x/1=one", "./y=two"]]


async def test_an_augmented_manifest_is_a_file(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    put_object("some/lines.jsonl", b'{"source-ref": "s3://bucket/1"}')
    _, found = await seen(
        jobs,
        make_spec,
        s3_uri="s3://bucket/some/lines.jsonl",
        data_type="AugmentedManifestFile",
        attribute_names=("source-ref",),
    )
    assert found == [['./lines.jsonl={"source-ref": "s3://bucket/1"}']]


async def test_what_is_compressed_comes_plain(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put
) -> None:
    put_object("z/a.csv.gz", gzip.compress(b"1,2"))
    put_object("z/b", gzip.compress(b"3") + gzip.compress(b"4"))
    _, found = await seen(jobs, make_spec, s3_uri="s3://bucket/z/", compression="Gzip")
    assert found == [["./a.csv=1,2", "./b=34"]]


NOTHING = 'No S3 objects found under S3 URL "s3://{}"'


@pytest.mark.parametrize(
    ("channel", "reason"),
    [
        ({"s3_uri": "s3://bucket/none/"}, NOTHING.format("bucket/none/")),
        ({"s3_uri": "s3://nobucket/none"}, "There is no bucket nobucket"),
        ({"s3_uri": "s3://bucket/none", "data_type": "ManifestFile"}, "NoSuchKey (404)"),
        ({"s3_uri": "s3://bucket/none", "data_type": "AugmentedManifestFile"}, "NoSuchKey (404)"),
        ({"s3_uri": "s3://bucket/bad/text", "data_type": "ManifestFile"}, "not a JSON list"),
        ({"s3_uri": "s3://bucket/bad/empty", "data_type": "ManifestFile"}, 'begin with {"prefix"'),
        ({"s3_uri": "s3://bucket/bad/away", "data_type": "ManifestFile"}, "s3://bucket/gone"),
        ({"s3_uri": "s3://bucket/bad/out", "data_type": "ManifestFile"}, "out of its folder"),
        ({"s3_uri": "s3://bucket/bad/text", "compression": "Gzip"}, "not valid gzip"),
        ({"s3_uri": "s3://bucket/bad/cut", "compression": "Gzip"}, "not valid gzip"),
        ({"s3_uri": "s3://bucket/up/"}, "'up/../x' cannot be a file"),
        ({"s3_uri": "s3://bucket/abs/"}, "'abs//etc' cannot be a file"),
        ({"s3_uri": "s3://bucket/long/"}, "more than 255 bytes"),
        ({"s3_uri": "s3://bucket/both/"}, "'both/a/b' cannot be a file: The key 'both/a'"),
        ({"s3_uri": "s3://bucket/tw"}, "would be the same file, 'two'"),
        ({"s3_uri": "s3://bucket/dot/"}, "not a valid file path"),
    ],
)
async def test_what_cannot_be_a_channel_fails_the_job_by_name(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, channel: dict[str, str], reason: str
) -> None:
    put_object("bad/text", b"no json")
    put_object("bad/empty", b"[]")
    put_object("bad/away", b'[{"prefix": "s3://bucket/"}, "gone"]')
    put_object("bad/out", b'[{"prefix": "s3://bucket/up/"}, "../x"]')
    put_object("bad/cut", gzip.compress(bytes(100))[:-9])
    put_object("up/../x", b"x")
    put_object("abs//etc", b"x")
    put_object("dot/a//b", b"x")
    put_object("long/" + "n" * 256, b"x")
    put_object("both/a", b"x")
    put_object("both/a/b", b"x")
    put_object("tw/two", b"x")
    put_object("two", b"x")
    report, found = await seen(jobs, make_spec, **channel)
    assert report.outcome is JobOutcome.FAILED
    assert report.failure_reason is not None
    assert report.failure_reason.startswith("ClientError: Data download failed:")
    assert reason in report.failure_reason
    assert report.phases[-1].phase is JobPhase.DOWNLOADING
    assert found == [[]]


async def test_more_than_the_volume_holds_is_not_fetched(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_object("t/1", b"x" * 600)
    put_object("t/2", b"x" * 600)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)
    report = await jobs.run(make_spec(channels=channels, volume_gb=0))
    assert report.outcome is JobOutcome.FAILED
    assert "has 1200 bytes, more than the 0 GB" in str(report.failure_reason)


async def test_what_unpacks_to_more_than_the_volume_holds_is_given_up(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "GIGABYTE", 2**20)
    put_object("z/zeros.gz", gzip.compress(bytes(2**20)) * 2)
    report, _ = await seen(jobs, make_spec, s3_uri="s3://bucket/z/", compression="Gzip")
    assert report.outcome is JobOutcome.FAILED
    assert "more than the 1 GB of its volume" in str(report.failure_reason)


async def test_too_many_objects_are_refused(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MAX_OBJECTS", 3)
    monkeypatch.setattr(inputs, "OBJECTS_PER_PAGE", 2)
    for name in "abc":
        put_object(f"t/{name}", b"x")
    report, found = await seen(jobs, make_spec, s3_uri="s3://bucket/t/")
    assert len(found[0]) == 3
    put_object("t/d", b"x")
    report = await jobs.run(
        make_spec(attempt_id="j-2", channels=(ChannelSpec(name="train", s3_uri="s3://bucket/t/"),))
    )
    assert "more than 3 objects" in str(report.failure_reason)


async def test_a_store_that_is_away_for_a_while_is_waited_for(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    put_object: Put,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_object("t/a", b"x")
    opened, away = jobs.around.objects.open, iter(range(2))

    def open_later(*paths: str) -> Any:
        for _ in away:
            raise Unavailable("It is away.")
        return opened(*paths)

    monkeypatch.setattr(jobs.around.objects, "open", open_later)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)
    jobs.jobs.put(make_spec(TREE, channels=channels))
    for wait in (0.1, 0.2):
        await clock.sleeper(wait)
        clock.advance(wait)
    assert (await jobs.ends()).outcome is JobOutcome.COMPLETED


async def test_a_store_that_stays_away_loses_the_attempt(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("It is away.")

    monkeypatch.setattr(jobs.around.objects, "list_page", fail)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)
    jobs.jobs.put(make_spec(TREE, channels=channels))
    await clock.sleeper(0.1)
    clock.advance(3600)
    report = await jobs.ends()
    assert report.outcome is JobOutcome.LOST
    assert report.failure_reason == (
        "InternalServerError: We encountered an internal error. Please try again. "
        "(The object store is unavailable: It is away.)"
    )


async def test_a_job_can_be_stopped_while_it_waits_for_its_data(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("It is away.")

    monkeypatch.setattr(jobs.around.objects, "list_page", fail)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)
    jobs.jobs.put(make_spec(TREE, channels=channels))
    await clock.sleeper(0.1)
    jobs.jobs.stop("j-1", StopRequest())
    report = await jobs.ends()
    assert report.outcome is JobOutcome.STOPPED
    assert report.running_seconds == 0


async def test_a_job_can_be_stopped_while_the_store_hangs(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    home: Home,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        asked.set()
        assert answers.wait(120)
        raise Unavailable("It is away.")

    monkeypatch.setattr(jobs.around.objects, "list_page", hang)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)
    jobs.jobs.put(make_spec(TREE, channels=channels))
    try:
        assert await asyncio.to_thread(asked.wait, 120)
        jobs.jobs.stop("j-1", StopRequest())
        await clock.sleeper(transfers.HALT_SECONDS)
        clock.advance(transfers.HALT_SECONDS)
        assert (await jobs.ends()).outcome is JobOutcome.STOPPED
    finally:
        answers.set()
    jobs.jobs.delete("j-1")
    await jobs.is_gone()
    assert list(home.jobs.iterdir()) == []


async def test_a_full_disk_loses_the_attempt_and_says_so(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_object("t/a", b"x")
    monkeypatch.setattr(transfers, "is_disk_full", lambda error: True)
    channels = (ChannelSpec(name="train", s3_uri="s3://bucket/t/"),)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs.around.objects, "open", full)
    report = await jobs.run(make_spec(TREE, channels=channels))
    assert report.outcome is JobOutcome.LOST
    assert "The disk that holds training jobs is full" in str(report.failure_reason)


async def test_the_code_is_unpacked_where_the_script_runner_looks(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, make_archive: Callable[..., bytes]
) -> None:
    put_object("code/sourcedir.tar.gz", make_archive(("train.sh", b"echo from the archive")))
    for attempt, value in (("j-1", "{}"), ("j-2", '"{}"')):
        address = value.format("s3://bucket/code/sourcedir.tar.gz")
        report = await jobs.run(
            make_spec(
                "cd $SAGEMAKER_SUBMIT_DIRECTORY; touch may-be-written; sh train.sh",
                attempt_id=attempt,
                hyperparameters={"sagemaker_submit_directory": address},
            )
        )
        assert report.outcome is JobOutcome.COMPLETED, report.failure_reason
    log = jobs.around.home.logs / "training-jobs" / "count" / "algo-1.log"
    assert log.read_text() == "from the archive\n" * 2


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("none", "NoSuchKey: There is no object none"),
        ("text", "Not a gzipped file"),
        ("out", "leads out of its folder"),
        ("empty", "has to be a tar.gz"),
    ],
)
async def test_a_code_archive_that_cannot_be_used(
    jobs: JobsUnderTest,
    make_spec: MakeSpec,
    put_object: Put,
    make_archive: Callable[..., bytes],
    key: str,
    reason: str,
) -> None:
    put_object("text", b"no archive")
    put_object("empty", b"")
    put_object("out", make_archive(("../x", b"")))
    code = {"sagemaker_submit_directory": f"s3://bucket/{key}"}
    report = await jobs.run(make_spec(hyperparameters=code))
    assert report.outcome is JobOutcome.FAILED
    assert reason in str(report.failure_reason)


@pytest.mark.parametrize(
    "wrong",
    [
        {"channels": (ChannelSpec(name="..", s3_uri="s3://b/"),)},
        {"channels": (ChannelSpec(name="a/b", s3_uri="s3://b/"),)},
        {"channels": (ChannelSpec(name="a", s3_uri="/tmp"),)},
        {"channels": (ChannelSpec(name="a", s3_uri="s3://b/", input_mode="Pipe"),)},
        {"channels": (ChannelSpec(name="a", s3_uri="s3://b/"),) * 2},
        {"hyperparameters": {"sagemaker_submit_directory": "s3://"}},
    ],
)
async def test_channels_that_make_no_sense_are_refused(
    jobs: JobsUnderTest, make_spec: MakeSpec, wrong: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        jobs.jobs.put(make_spec(**wrong))


async def test_a_channel_is_gone_with_its_job(
    jobs: JobsUnderTest, make_spec: MakeSpec, put_object: Put, home: Home
) -> None:
    put_object("t/a", b"x")
    await seen(jobs, make_spec, s3_uri="s3://bucket/t/")
    jobs.jobs.delete("j-1")
    await jobs.is_gone()
    assert list(home.jobs.iterdir()) == []
