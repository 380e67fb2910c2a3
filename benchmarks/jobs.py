"""Jobs of 50 ms, a process each, two at a time: Sagehen next to a loop that starts processes.

    python3 benchmarks/jobs.py [--jobs 1000] [--at-a-time 2] [--only loop,training,service] [--save]

A job is `sleep 0.05`. Ideal is that many sleeps, so many at a time, and nothing else. The loop is
what a script would be: threads that start the process, wait for it, and keep nothing. Sagehen's
are training jobs (their rows, logs, folders, status changes and events), created at once and held
back by `max_running_jobs`; and those of the Async-Inference-Service, asked for by HTTP, held back
by its `limit` and told of by a notice each.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from descendants import adopt_orphans
from frame import heading, keep, row_of, some
from inside import Inside
from job_service import ask_service, count_ended
from machine import describe_machine
from other_load import OtherLoad
from sides import ROLE, Failed, Server, server

SECONDS = 0.05
COMMAND = ["sleep", str(SECONDS)]
TARGET_MILLISECONDS = 150.0
"""the target for the overhead of a job, at most"""
SAMPLES = 10
CREATORS = 4
LONGEST_SECONDS = 600.0
BUCKET = "benchmark-jobs"
TYPE = "model-a"
PACKAGES = ("sagehen", "sqlalchemy", "uvloop")


@dataclass
class Run:
    """The measurements of one side."""

    name: str
    jobs: int
    at_a_time: int
    seconds: float = 0.0
    """Seconds from the first request to the end of the last job."""
    memory: list[dict[str, float]] = field(default_factory=list)
    """MiB by role, as the jobs go by; the first is before any."""

    @property
    def ideal(self) -> float:
        return self.jobs / self.at_a_time * SECONDS

    @property
    def overhead_milliseconds(self) -> float:
        """The time that a job occupies its slot beyond its own run time."""
        return (self.seconds - self.ideal) * self.at_a_time / self.jobs * 1000


def main() -> None:
    arguments = parse_arguments()
    adopt_orphans()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))
    other_load = OtherLoad(ignored=arguments.at_once)
    runs = []
    for key in arguments.only:
        print(key, file=sys.stderr)
        measure = partial(SIDES[key], arguments.jobs, arguments.at_a_time)
        runs.append(other_load.undisturbed(measure))
    report = render(runs, other_load)
    print(report)
    if arguments.save:
        keep(report, "jobs")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--only", type=some(tuple(SIDES)), default=tuple(SIDES))
    parser.add_argument("--at-once", action="store_true", help="whatever else the machine does")
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    return parser.parse_args()


def loop(jobs: int, at_a_time: int) -> Run:
    """Threads that start processes."""
    run = Run("A loop of threads that start it", jobs, at_a_time)
    start = time.perf_counter()
    with ThreadPoolExecutor(at_a_time) as pool:
        for _ in pool.map(lambda _: subprocess.run(COMMAND, check=True), range(jobs)):
            pass
    run.seconds = time.perf_counter() - start
    return run


def training(jobs: int, at_a_time: int) -> Run:
    """Training jobs, created by boto3."""
    run = Run("Sagehen: training jobs", jobs, at_a_time)
    with started(max_running_jobs=at_a_time) as running:
        follow(run, running, partial(create_jobs, running, jobs))
    return run


def service(jobs: int, at_a_time: int) -> Run:
    """Jobs of the Async-Inference-Service, by HTTP."""
    run = Run("Sagehen: the Async-Inference-Service", jobs, at_a_time)
    with started(max_running_jobs=2 * at_a_time, limit=at_a_time) as running:
        follow(run, running, partial(ask_service, running.url, TYPE, jobs, CREATORS))
    return run


SIDES: dict[str, Callable[[int, int], Run]] = {
    "loop": loop,
    "training": training,
    "service": service,
}


@contextmanager
def started(max_running_jobs: int, limit: int | None = None) -> Iterator[Server]:
    """A server; with a `limit`, one with the service."""
    with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "sagehen.toml").write_text(settings(limit))
        with server(Path(folder), SAGEHEN_MAX_RUNNING_JOBS=str(max_running_jobs)) as running:
            yield running


def settings(limit: int | None) -> str:
    lines = ["[images]", f'"{TYPE}" = {COMMAND}']
    if limit is not None:
        lines += [
            "[inference_service]",
            f'white_list = "{TYPE}"',
            f"limit = {limit}",
            f's3_bucket = "{BUCKET}"',
            f'role_arn = "{ROLE}"',
            "require_api_key = false",
            'when_full = "queue"',
            "max_queued = 10000",
        ]
    return "\n".join([*lines, ""])


def create_jobs(running: Server, jobs: int) -> None:
    sagemaker = running.client("sagemaker")

    def create(number: int) -> None:
        sagemaker.create_training_job(
            TrainingJobName=f"job-{number}",
            RoleArn=ROLE,
            AlgorithmSpecification={"TrainingImage": TYPE, "TrainingInputMode": "File"},
            OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/output"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
        )

    with ThreadPoolExecutor(CREATORS) as pool:
        for _ in pool.map(create, range(jobs)):
            pass


def follow(run: Run, running: Server, ask: Callable[[], None]) -> None:
    """Ask for all jobs and wait for their ends; memory is looked at along the way."""
    running.client("s3").create_bucket(Bucket=BUCKET)
    run.memory.append(memory_of(running))
    start = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        ended = 0
        while ended < run.jobs:
            if asking.done():
                asking.result()
            if time.perf_counter() - start > LONGEST_SECONDS:
                raise Failed(f"{run.name}: {ended} of {run.jobs} jobs ended in time.")
            time.sleep(SECONDS)
            ended = count_ended(running.home)
            if ended >= len(run.memory) * run.jobs / SAMPLES:
                run.memory.append(memory_of(running))
        run.seconds = time.perf_counter() - start


def memory_of(running: Server) -> dict[str, float]:
    return {role: mib for (role, _), mib in Inside(running).memory_mib().items()}


def render(runs: Sequence[Run], other_load: OtherLoad) -> str:
    lines = [*heading("Jobs"), *describe_machine(PACKAGES, load=False), other_load.describe(), ""]
    first = runs[0]
    lines += [
        f"{first.jobs:,} jobs, each `{' '.join(COMMAND)}` in a process of its own, "
        f"{first.at_a_time} at a time: ideally {first.ideal:.1f} s.",
        "",
        "| side | all ended after, s | times ideal | overhead of a job, ms |",
        "|---|---|---|---|",
        *(
            row_of(
                (
                    run.name,
                    f"{run.seconds:.1f}",
                    f"{run.seconds / run.ideal:.2f}",
                    f"{run.overhead_milliseconds:.0f}",
                )
            )
            for run in runs
        ),
    ]
    for run in runs:
        if run.memory:
            lines += memory_table(run)
    return "\n".join([*lines, "", *targets(runs), ""])


def memory_table(run: Run) -> list[str]:
    roles = list(run.memory[0])
    count = len(run.memory)
    shares = [100 * number // SAMPLES for number in range(count)]
    return [
        "",
        f"Resident memory, MiB, of {run.name} after a share of the jobs:",
        "",
        row_of(["role", *(f"{share} %" for share in shares)]),
        f"|{'---|' * (count + 1)}",
        *(row_of([role, *(f"{seen.get(role, 0):.0f}" for seen in run.memory)]) for role in roles),
    ]


def targets(runs: Sequence[Run]) -> list[str]:
    return [
        f"- {run.name}: overhead {run.overhead_milliseconds:.0f} ms a job, target below "
        f"{TARGET_MILLISECONDS:.0f}: "
        f"{'met' if run.overhead_milliseconds < TARGET_MILLISECONDS else 'missed'}"
        for run in runs
        if run.memory
    ]


if __name__ == "__main__":
    main()
