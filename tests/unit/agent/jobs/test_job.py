import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sagehen.agent.jobs.context import JobContext
from sagehen.agent.launchers.own_network import NetworkSupport
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.base.home import Home
from sagehen.frame.job_specs import JobOutcome, JobPhase, JobReport, StopRequest
from support.clock import SteppedClock
from support.jobs import JobsUnderTest, MakeSpec
from support.namespaces import may_unshare_network
from support.processes import children_with

ALL_PHASES = [JobPhase.STARTING, JobPhase.DOWNLOADING, JobPhase.TRAINING, JobPhase.UPLOADING]
WAITS_FOR_SIGTERM = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.02; done"


def phases(report: JobReport) -> list[JobPhase]:
    return [change.phase for change in report.phases]


async def printed(home: Home, text: str, job: str = "count") -> str:
    """The first host's log, once it holds `text`."""
    path = home.logs / "training-jobs" / job / "algo-1.log"
    async with asyncio.timeout(120):
        while not path.exists() or text not in path.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return path.read_text()


async def test_a_job_runs_through_its_phases(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    report = await jobs.run(make_spec("echo hello"))
    assert report.outcome is JobOutcome.COMPLETED
    assert phases(report) == ALL_PHASES
    assert (report.exit_code, report.failure_reason, report.stopping) == (0, None, False)
    assert "hello" in await printed(home, "hello")


async def test_nothing_is_left_of_a_job_but_its_report_and_its_log(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    await jobs.run(make_spec("sleep 1000 & true"))
    jobs.jobs.delete("j-1")
    await jobs.is_gone()
    assert list(home.jobs.iterdir()) == []
    assert list(home.ended_jobs.iterdir()) == []
    assert children_with("1000") == []


async def test_the_container_reads_what_sagemaker_would_write(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    show = "cd $SAGEMAKER_BASE_DIR/input/config; for f in *; do echo $f; cat $f; echo; done"
    await jobs.run(make_spec(show, hyperparameters={"epochs": "3"}, instance_count=2))
    lines = (await printed(home, "resourceconfig")).splitlines()
    read = dict(zip(lines[::2], map(json.loads, lines[1::2]), strict=True))
    hosts = ["algo-1", "algo-2"]
    assert read == {
        "hyperparameters.json": {"epochs": "3"},
        "inputdataconfig.json": {},
        "resourceconfig.json": {
            "current_host": "algo-1",
            "current_instance_type": "ml.m5.large",
            "current_group_name": "homogeneousCluster",
            "hosts": hosts,
            "instance_groups": [
                {
                    "instance_group_name": "homogeneousCluster",
                    "instance_type": "ml.m5.large",
                    "hosts": hosts,
                }
            ],
            "network_interface_name": "lo",
        },
    }


async def test_a_user_cannot_change_what_the_platform_says(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, base: Path
) -> None:
    given = {"TRAINING_JOB_NAME": "other", "SAGEMAKER_BASE_DIR": "/", "LANG": "de_DE", "OWN": "1"}
    await jobs.run(make_spec("env; echo END", environment=given))
    said = dict(
        line.split("=", 1) for line in (await printed(home, "END")).splitlines() if "=" in line
    )
    assert said["TRAINING_JOB_NAME"] == "count"
    assert said["TRAINING_JOB_ARN"].endswith(":training-job/count")
    assert said["SAGEMAKER_BASE_DIR"] == str(base)
    assert (said["AWS_REGION"], said["LANG"], said["OWN"]) == ("us-east-1", "de_DE", "1")
    assert said["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert said["AWS_ACCESS_KEY_ID"].startswith("AKSH")


async def test_an_isolated_container_gets_no_credentials(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    await jobs.run(make_spec("env; echo END", network_isolation=True))
    assert "AWS_ACCESS_KEY_ID" not in await printed(home, "END")


@may_unshare_network
async def test_the_hosts_of_an_isolated_job_share_a_network_of_their_own(
    around: JobContext, make_spec: MakeSpec, home: Home
) -> None:
    jobs = JobsUnderTest(replace(around, networks=NetworkSupport(None, None)))
    await jobs.jobs.start()
    script = """readlink /proc/self/ns/net
        case $SAGEMAKER_BASE_DIR in *algo-1*) read _ < "$P";; *) echo > "$P";; esac"""
    os.mkfifo(home.path / "pipe")
    environment = {"P": str(home.path / "pipe")}
    spec = make_spec(script, network_isolation=True, instance_count=2, environment=environment)
    report = await jobs.run(spec)
    assert report.outcome is JobOutcome.COMPLETED, report.failure_reason
    logs = home.logs / "training-jobs" / "count"
    networks = [(logs / f"algo-{number}.log").read_text() for number in (1, 2)]
    assert networks[0] == networks[1] != os.readlink("/proc/self/ns/net") + "\n"
    await jobs.jobs.close()


async def test_isolation_that_cannot_be_had_fails_the_job_unless_a_setting_allows_it(
    around: JobContext, make_spec: MakeSpec
) -> None:
    settings = around.settings.model_copy(update={"network_isolation": "required"})
    jobs = JobsUnderTest(replace(around, settings=settings))
    await jobs.jobs.start()
    report = await jobs.run(make_spec("echo", network_isolation=True))
    assert report.outcome is JobOutcome.FAILED
    assert "EnableNetworkIsolation asks for" in (report.failure_reason or "")
    assert "where_possible" in (report.failure_reason or "")
    await jobs.jobs.close()


async def test_an_images_command_runs_beside_the_settings_as_it_is(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    (home.path / "count.sh").write_text('echo "told to $*"')
    await jobs.run(make_spec(image="me/counter:1", entrypoint=()))
    assert "told to \n" in await printed(home, "told")
    await jobs.run(
        make_spec(image="counter", entrypoint=(), arguments=("a", "b c"), attempt_id="j-2")
    )
    assert "told to a b c\n" in await printed(home, "a b")


async def test_what_has_no_program_says_what_to_do(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec(entrypoint=(), image="me/unknown"))
    assert report.outcome is JobOutcome.FAILED
    assert report.failure_reason is not None
    assert report.failure_reason.startswith("AlgorithmError: ")
    assert "sagemaker_program" in report.failure_reason
    assert JobPhase.TRAINING not in phases(report)


async def test_a_command_that_is_not_there_fails_the_job(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec(entrypoint=("/nonexistent/train",)))
    assert report.outcome is JobOutcome.FAILED
    assert "/nonexistent/train: No such file or directory" in str(report.failure_reason)


@pytest.mark.parametrize(
    ("script", "reason", "code"),
    [
        ("echo whatever; exit 3", "AlgorithmError: whatever, exit code: 3", 3),
        (
            "echo '  no rows ' > $B/output/failure; exit 1",
            "AlgorithmError: no rows, exit code: 1",
            1,
        ),
        (
            "echo 'ClientError: bad' > $B/output/failure; exit 2",
            "ClientError: bad, exit code: 2",
            2,
        ),
        ("kill -9 $$", "AlgorithmError: , exit code: 137", 137),
        ("mkfifo $B/output/failure; echo piped; exit 1", "AlgorithmError: piped, exit code: 1", 1),
    ],
)
async def test_what_a_failure_is_said_to_be(
    jobs: JobsUnderTest, make_spec: MakeSpec, script: str, reason: str, code: int
) -> None:
    report = await jobs.run(make_spec(f"B=$SAGEMAKER_BASE_DIR; {script}"))
    assert report.outcome is JobOutcome.FAILED
    assert (report.failure_reason, report.exit_code) == (reason, code)


async def test_a_long_failure_is_cut_and_keeps_its_exit_code(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x > $SAGEMAKER_BASE_DIR/output/failure; exit 7"
    reason = (await jobs.run(make_spec(script))).failure_reason
    assert reason is not None
    assert len(reason) == 1024
    assert reason.startswith("AlgorithmError: xxx")
    assert reason.endswith("xxx, exit code: 7")


async def test_a_job_that_is_stopped_may_finish(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    jobs.jobs.put(make_spec(WAITS_FOR_SIGTERM))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest())
    jobs.jobs.stop("j-1", StopRequest())
    assert (await jobs.reports(lambda report: True)).stopping
    report = await jobs.ends()
    assert report.outcome is JobOutcome.STOPPED
    assert phases(report) == ALL_PHASES
    jobs.jobs.stop("j-1", StopRequest())
    assert (await jobs.ends()).outcome is JobOutcome.STOPPED


async def test_who_does_not_end_is_killed_after_the_grace(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
) -> None:
    jobs.jobs.put(make_spec(IGNORES_SIGTERM))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest())
    await clock.sleeper(120)
    clock.advance(119)
    assert jobs.jobs.list().jobs[0].outcome is None
    clock.advance(1)
    report = await jobs.ends()
    assert (report.outcome, report.running_seconds) == (JobOutcome.STOPPED, 120)


async def test_a_later_order_can_only_shorten_the_grace(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
) -> None:
    jobs.jobs.put(make_spec(IGNORES_SIGTERM))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest(grace_seconds=60))
    await clock.sleeper(60)
    jobs.jobs.stop("j-1", StopRequest(grace_seconds=600))
    jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED, grace_seconds=5))
    await clock.sleeper(5)
    clock.advance(5)
    assert (await jobs.ends()).outcome is JobOutcome.STOPPED


async def test_a_job_runs_no_longer_than_it_may_whatever_the_wall_clock_says(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
) -> None:
    jobs.jobs.put(make_spec(WAITS_FOR_SIGTERM, runtime_seconds=100))
    await printed(home, "ready")
    await clock.sleeper(100)
    clock.jump(1_000_000)
    clock.advance(99)
    await asyncio.sleep(0.05)
    assert jobs.jobs.list().jobs[0].outcome is None
    clock.jump(-2_000_000)
    clock.advance(1)
    report = await jobs.ends()
    assert (report.outcome, report.running_seconds) == (JobOutcome.MAX_RUNTIME, 100)
    times = [*(change.at for change in report.phases), report.ended_at]
    assert times == [1_700_000_000.0] * 3 + [1_700_000_100.0] * 2


async def test_a_container_that_ends_in_the_grace_by_itself_is_not_waited_for(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    jobs.jobs.put(make_spec("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest())
    report = await jobs.ends()
    assert (report.outcome, report.failure_reason) == (JobOutcome.STOPPED, None)


async def test_only_the_main_process_is_asked_to_end(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    child = "(trap 'echo child was told' TERM; while :; do sleep 0.02; done) &"
    jobs.jobs.put(make_spec(f"{child} trap 'sleep 0.1; exit 0' TERM; echo ready; wait"))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest())
    await jobs.ends()
    assert "child was told" not in await printed(home, "ready")


async def test_an_interrupted_job_uploads_nothing(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    jobs.jobs.put(make_spec(WAITS_FOR_SIGTERM))
    await printed(home, "ready")
    jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED))
    jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED))
    report = await jobs.ends()
    assert report.outcome is JobOutcome.INTERRUPTED
    assert JobPhase.UPLOADING not in phases(report)


async def test_a_put_of_a_known_attempt_does_nothing(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    spec = make_spec("echo once")
    jobs.jobs.put(spec)
    jobs.jobs.put(spec)
    await jobs.ends()
    jobs.jobs.put(spec)
    assert len(jobs.jobs.list().jobs) == 1
    assert (await printed(home, "once")).count("once") == 1


async def test_a_deleted_attempt_is_killed_and_forgotten(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    jobs.jobs.put(make_spec(IGNORES_SIGTERM))
    await printed(home, "ready")
    jobs.jobs.delete("j-1")
    await jobs.is_gone()
    assert list(home.jobs.iterdir()) == []
    with pytest.raises(NotFound):
        jobs.jobs.delete("j-1")
    with pytest.raises(NotFound):
        jobs.jobs.stop("j-1", StopRequest())


async def test_the_logs_of_attempts_are_one(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    for attempt in ("j-1", "j-2"):
        await jobs.run(make_spec(f"echo by {attempt}", attempt_id=attempt))
    assert (await printed(home, "j-2")).splitlines() == ["by j-1", "by j-2"]


async def test_if_one_host_fails_the_others_are_ended(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, clock: SteppedClock
) -> None:
    script = f"""
        case $SAGEMAKER_BASE_DIR in *algo-2*) echo no luck; exit 4;; esac; {IGNORES_SIGTERM}"""
    jobs.jobs.put(make_spec(script, instance_count=3))
    await jobs.trains()
    await clock.sleeper(5)
    clock.advance(5)
    report = await jobs.ends()
    assert report.outcome is JobOutcome.FAILED
    assert report.failure_reason == "AlgorithmError: no luck, exit code: 4"
    assert report.exit_code == 4


async def test_a_job_is_complete_when_all_its_hosts_are(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    script = "case $SAGEMAKER_BASE_DIR in *algo-2*) sleep 0.2;; esac; echo done"
    report = await jobs.run(make_spec(script, instance_count=2))
    assert report.outcome is JobOutcome.COMPLETED
    assert (home.logs / "training-jobs" / "count" / "algo-2.log").read_text() == "done\n"


async def test_a_stopping_agent_interrupts_its_jobs_and_the_next_one_tells(
    around: JobContext, make_spec: MakeSpec
) -> None:
    first = JobsUnderTest(around)
    await first.jobs.start()
    first.jobs.put(make_spec(WAITS_FOR_SIGTERM))
    await printed(around.home, "ready")
    await first.jobs.close()
    with pytest.raises(Unavailable):
        first.jobs.put(make_spec(attempt_id="j-2"))
    second = JobsUnderTest(around)
    await second.jobs.start()
    assert (await second.ends()).outcome is JobOutcome.INTERRUPTED


async def test_a_report_that_cannot_be_read_is_as_good_as_none_and_is_kept_aside(
    around: JobContext, home: Home
) -> None:
    (home.ended_jobs / "j-1.json").write_text("{")
    (home.ended_jobs / "j-2.new").write_text("{")
    jobs = JobsUnderTest(around)
    await jobs.jobs.start()
    assert jobs.jobs.list().jobs == ()
    assert [path.name for path in home.ended_jobs.iterdir()] == ["j-1.unreadable"]
    assert (home.ended_jobs / "j-1.unreadable").read_text() == "{"


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempt_id": "../x"},
        {"attempt_id": ""},
        {"job_name": "a/b"},
        {"job_name": ".."},
        {"instance_count": 0},
        {"instance_count": 101},
        {"output_uri": "file:///tmp"},
    ],
)
async def test_a_spec_that_makes_no_sense_is_refused(
    jobs: JobsUnderTest, make_spec: MakeSpec, wrong: dict[str, object]
) -> None:
    with pytest.raises(Invalid):
        jobs.jobs.put(make_spec(**wrong))
    assert jobs.jobs.list().jobs == ()


@pytest.mark.parametrize("outcome", [JobOutcome.COMPLETED, JobOutcome.LOST])
async def test_nobody_is_told_to_end_otherwise(
    jobs: JobsUnderTest, make_spec: MakeSpec, outcome: JobOutcome
) -> None:
    jobs.jobs.put(make_spec("sleep 1000"))
    with pytest.raises(Invalid):
        jobs.jobs.stop("j-1", StopRequest(outcome=outcome))


async def test_a_failure_that_no_text_can_hold_is_told_without_it(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    script = r"printf 'a\000b\377' > $SAGEMAKER_BASE_DIR/output/failure; exit 3"
    report = await jobs.run(make_spec(script))
    assert report.failure_reason == "AlgorithmError: a\ufffdb\ufffd, exit code: 3"


async def test_an_attempt_that_ends_in_the_moment_it_is_deleted_is_forgotten(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = jobs.jobs
    spawned = []
    monkeypatch.setattr(agent, "_spawn", spawned.append)
    agent.put(make_spec("true"))
    spawned.pop().close()  # Of the logs.
    await jobs.reports(lambda report: report.outcome)
    life = agent._tasks.get("j-1")
    agent.delete("j-1")
    if life is not None:
        await asyncio.wait({life})
    await jobs.turn()
    for work in spawned:
        await work
    assert agent.list().jobs == ()
    assert list(home.ended_jobs.iterdir()) == []


async def test_an_attempt_that_breaks_its_agents_rules_is_lost_and_holds_up_nothing(
    jobs: JobsUnderTest, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(jobs.jobs._reports, "save", broken)
    jobs.jobs.put(make_spec("true"))
    await jobs.is_gone()
    assert jobs.jobs.list().jobs == ()
