"""`sagehen training`: lists, shows and interrupts training jobs."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sagehen.app.commands.completion import complete_training
from sagehen.app.commands.job_lists import CountOption, StatusOption, call_sagemaker, print_jobs
from sagehen.app.commands.output import duration_text, json_text, print_line, time_text
from sagehen.base.errors import Invalid, NotFound
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

__all__ = ["training_app"]

training_app = typer.Typer(help="List, show and interrupt training jobs.", no_args_is_help=True)


_MISSING = "Requested resource not found"
"""SageMaker's answer for a job that is not there, which names none"""
_COLUMNS = ("Name", "Status", "Stage", "Created", "Duration")


@training_app.command("list")
def show_all(
    status: StatusOption = None,
    count: CountOption = 50,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List training jobs, those of inference services too, the newest first."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        aws = connect_home(home, config)
        print_jobs(aws, "training", status, count, _COLUMNS, _row, as_json)


@training_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A training job.", autocompletion=complete_training)],
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a training job: its status and the way to it, and why it failed."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        try:
            job = call_sagemaker(
                connect_home(home, config), "describe_training_job", TrainingJobName=name
            )
        except Invalid as error:
            if _MISSING not in str(error):
                raise
            raise NotFound(
                f"There is no training job {name!r}; `sagehen training list` lists them."
            ) from error
        job.pop("ResponseMetadata", None)
        if as_json:
            print_line(json_text(job))
            return
        for label, value in _fields_of(job):
            print_line(f"{label}: {value}")


@training_app.command()
def interrupt(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A training job; else spot jobs, those begun last first.",
            autocompletion=complete_training,
        ),
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
        print_line(
            json.dumps(answer) if as_json else "\n".join([f"{len(names)} interrupted.", *names])
        )


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job["TrainingJobName"],
        job["TrainingJobStatus"],
        job.get("SecondaryStatus", "-"),
        time_text(job["CreationTime"]),
        duration_text(_seconds(job)),
    )


def _seconds(job: dict[str, Any]) -> float:
    ended = job.get("TrainingEndTime") or datetime.now(UTC)
    return float((ended - job["CreationTime"]).total_seconds())


def _fields_of(job: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    yield "Name", job["TrainingJobName"]
    yield "Status", f"{job['TrainingJobStatus']} ({job['SecondaryStatus']})"
    if reason := job.get("FailureReason"):
        yield "Failure reason", reason
    for step in job.get("SecondaryStatusTransitions", ()):
        yield (
            time_text(step["StartTime"]),
            ": ".join(filter(None, (step["Status"], step.get("StatusMessage")))),
        )
    for label, member in (("Created", "CreationTime"), ("Ended", "TrainingEndTime")):
        if member in job:
            yield label, time_text(job[member])
    algorithm = job.get("AlgorithmSpecification", {})
    if "TrainingImage" in algorithm:
        yield "Image", algorithm["TrainingImage"]
    if artifacts := job.get("ModelArtifacts", {}).get("S3ModelArtifacts"):
        yield "Model", artifacts
    for metric in job.get("FinalMetricDataList", ()):
        yield f"Metric {metric['MetricName']}", metric["Value"]
    yield "Log", f"sagehen logs {job['TrainingJobName']}"
