"""`sagehen jobs`: lists, shows and interrupts training jobs."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sagehen.base.errors import Invalid
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

if TYPE_CHECKING:
    from sagehen.apply.client import Aws

__all__ = ["jobs_app"]

jobs_app = typer.Typer(help="List, show and interrupt training jobs.", no_args_is_help=True)


class Status(StrEnum):
    """A TrainingJobStatus of SageMaker."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


@jobs_app.command("list")
def show_all(
    status: Annotated[
        Status | None, typer.Option(help="Only jobs with this status.", case_sensitive=False)
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="How many at most, the newest first.")
    ] = 50,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List training jobs, those of inference services too, the newest first."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        jobs = list(islice(_jobs(connect_home(home, config), status), count))
        if as_json:
            _print(_as_json(jobs))
            return
        if not jobs:
            _print("There are no training jobs" + (f" that are {status}." if status else "."))
            return
        rows = [("Name", "Status", "Stage", "Created (UTC)", "Duration"), *map(_row, jobs)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            _print("  ".join(cells).rstrip())


@jobs_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A training job.")],
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a training job: its status and the way to it, and why it failed."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        job = _call(connect_home(home, config), "describe_training_job", TrainingJobName=name)
        job.pop("ResponseMetadata", None)
        if as_json:
            _print(_as_json(job))
            return
        for label, value in _fields_of(job):
            _print(f"{label}: {value}")


@jobs_app.command()
def interrupt(
    name: Annotated[
        str | None, typer.Argument(help="A training job; else spot jobs, those begun last first.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=0, help="How many spot jobs; without it all of them.")
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Interrupt running jobs, as a spot reclaim would; they restart from their checkpoints."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        if name is not None and count is not None:
            raise Invalid("Give either a training job or --count.")
        path = ("interrupt",) if name is None else (name, "interrupt")
        query = None if count is None else {"count": str(count)}
        answer = connect_home(home, config).own("POST", "jobs", *path, query=query)
        names = answer["interrupted"]
        _print(json.dumps(answer) if as_json else "\n".join([f"{len(names)} interrupted.", *names]))


def _jobs(aws: "Aws", status: Status | None) -> Iterable[dict[str, Any]]:
    parameters: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending"}
    if status is not None:
        parameters["StatusEquals"] = status.value
    while True:
        page = _call(aws, "list_training_jobs", **parameters)
        yield from page["TrainingJobSummaries"]
        if "NextToken" not in page:
            return
        parameters["NextToken"] = page["NextToken"]


def _call(aws: "Aws", operation: str, **parameters: Any) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError

    from sagehen.apply.client import sagehen_error

    try:
        answer: dict[str, Any] = getattr(aws.client("sagemaker"), operation)(**parameters)
    except (ClientError, BotoCoreError) as error:
        raise sagehen_error(error) from error
    return answer


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job["TrainingJobName"],
        job["TrainingJobStatus"],
        job.get("SecondaryStatus", "-"),
        _time(job["CreationTime"]),
        _duration(job["CreationTime"], job.get("TrainingEndTime")),
    )


def _fields_of(job: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    yield "Name", job["TrainingJobName"]
    yield "Status", f"{job['TrainingJobStatus']} ({job['SecondaryStatus']})"
    if reason := job.get("FailureReason"):
        yield "Failure reason", reason
    for step in job.get("SecondaryStatusTransitions", ()):
        yield (
            _time(step["StartTime"]),
            ": ".join(filter(None, (step["Status"], step.get("StatusMessage")))),
        )
    for label, member in (("Created", "CreationTime"), ("Ended", "TrainingEndTime")):
        if member in job:
            yield label, _time(job[member])
    algorithm = job.get("AlgorithmSpecification", {})
    if "TrainingImage" in algorithm:
        yield "Image", algorithm["TrainingImage"]
    if artifacts := job.get("ModelArtifacts", {}).get("S3ModelArtifacts"):
        yield "Model", artifacts
    for metric in job.get("FinalMetricDataList", ()):
        yield f"Metric {metric['MetricName']}", metric["Value"]
    yield "Log", f"sagehen logs {job['TrainingJobName']}"


def _duration(begun: datetime, ended: datetime | None) -> str:
    seconds = int(((ended or datetime.now(UTC)) - begun).total_seconds())
    hours, remainder = divmod(max(0, seconds), 3600)
    return f"{hours}:{remainder // 60:02}:{remainder % 60:02}"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _as_json(value: object) -> str:
    return json.dumps(
        value,
        indent=2,
        ensure_ascii=False,
        default=lambda moment: moment.astimezone(UTC).isoformat(),
    )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
