"""`sagehen transform`: lists, describes, stops and watches transform jobs."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from sagehen.app.commands.control_client import call_control
from sagehen.base.config import load_settings
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

if TYPE_CHECKING:
    from sagehen.apply.client import Aws

__all__ = ["transform_app"]

transform_app = typer.Typer(
    help="List, describe, stop and watch transform jobs.", no_args_is_help=True
)

JobArgument = Annotated[str, typer.Argument(help="A transform job.")]

_ENDED = ("Completed", "Failed", "Stopped")


class Status(StrEnum):
    """A TransformJobStatus of SageMaker."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


@transform_app.command("list")
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
    """List transform jobs, the newest first."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        jobs = list(islice(_jobs(connect_home(home, config), status), count))
        if as_json:
            _print(_as_json(jobs))
            return
        if not jobs:
            _print("There are no transform jobs" + (f" that are {status}." if status else "."))
            return
        rows = [("Name", "Status", "Created (UTC)", "Ended (UTC)"), *map(_row, jobs)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            _print("  ".join(cells).rstrip())


@transform_app.command()
def describe(
    name: JobArgument,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a transform job: its status, how far it is, and why it failed."""
    with plain_errors():
        progress = _progress(_home(home, config), name)
        if as_json:
            _print(_as_json(progress))
            return
        for label, value in _fields_of(progress):
            _print(f"{label}: {value}")


@transform_app.command()
def stop(name: JobArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Stop a transform job; outputs of finished objects stay."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        _call(connect_home(home, config), "stop_transform_job", TransformJobName=name)
        _print(f"{name} is stopping.")


@transform_app.command()
def watch(
    name: JobArgument,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at the job.")
    ] = 1.0,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a transform job's progress until it ends; exits with 1 unless it is Completed."""
    with plain_errors():
        server_home = _home(home, config)
        looks = _looks(lambda: _progress(server_home, name), interval)
        last = _show_bar(name, looks) if out.is_terminal else _show_lines(looks)
        _print(" ".join(filter(None, (f"{name} is {last['status']}.", last["failure_reason"]))))
    if last["status"] != Status.COMPLETED:
        raise typer.Exit(1)


def _looks(look: Callable[[], dict[str, Any]], interval: float) -> Iterator[dict[str, Any]]:
    """Yields a job's progress until it has ended, at least once."""
    while True:
        progress = look()
        yield progress
        if progress["status"] in _ENDED:
            return
        time.sleep(interval)


def _show_bar(name: str, looks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn

    last: dict[str, Any] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    with Progress(*columns, console=out, transient=False) as bar:
        task = bar.add_task(name, total=None, counts="")
        for last in looks:
            bar.update(
                task,
                total=last["input_bytes_known"] or None,
                completed=last["input_bytes"],
                counts=_counts(last),
            )
    return last


def _show_lines(looks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Prints a line for each change, for logs and pipes."""
    last: dict[str, Any] = {}
    printed = ""
    for last in looks:
        line = f"{last['status']}: {_counts(last)}"
        # A later time left alone is no news.
        news = line.partition(", about")[0]
        if news != printed:
            _print(line)
            printed = news
    return last


def _counts(progress: dict[str, Any]) -> str:
    known = str(progress["objects_known"]) + ("" if progress["is_listed"] else "+")
    parts = [f"{progress['objects']} of {known} objects", f"{progress['records']} records"]
    if progress["failed_objects"]:
        parts.append(f"{progress['failed_objects']} objects failed")
    if progress["failed_records"]:
        parts.append(f"{progress['failed_records']} records failed")
    if progress["records_per_second"]:
        parts.append(f"{progress['records_per_second']:,.0f} records/s")
    if progress["seconds_left"] is not None:
        parts.append(f"about {_duration(progress['seconds_left'])} left")
    return ", ".join(parts)


def _fields_of(progress: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    yield "Name", progress["name"]
    yield "Status", progress["status"]
    if progress["failure_reason"]:
        yield "Failure reason", progress["failure_reason"]
    for label, member in (
        ("Created", "created_at"),
        ("Started", "started_at"),
        ("Ended", "ended_at"),
    ):
        if progress[member] is not None:
            yield label, _time(datetime.fromtimestamp(progress[member], UTC))
    yield "Progress", _counts(progress)
    yield "Input", f"{progress['input_bytes']:,} of {progress['input_bytes_known']:,} bytes"
    if progress["batch_strategy"] is not None:
        yield (
            "Settings",
            f"MaxConcurrentTransforms {progress['max_concurrent_transforms']}, "
            f"MaxPayloadInMB {progress['max_payload_in_mb']}, {progress['batch_strategy']}",
        )
    yield "Log", f"sagehen logs {progress['name']}"


def _progress(home: Home, name: str) -> dict[str, Any]:
    progress = call_control(home, f"transform-jobs/{quote(name, safe='')}")
    del progress["url"]
    return progress


def _home(home: Any, config: Any) -> Home:
    return Home(load_settings(config, home=home).home)


def _jobs(aws: "Aws", status: Status | None) -> Iterable[dict[str, Any]]:
    parameters: dict[str, Any] = {"MaxResults": 100}
    if status is not None:
        parameters["StatusEquals"] = status.value
    while True:
        page = _call(aws, "list_transform_jobs", **parameters)
        yield from page["TransformJobSummaries"]
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
    ended = job.get("TransformEndTime")
    return (
        job["TransformJobName"],
        job["TransformJobStatus"],
        _time(job["CreationTime"]),
        _time(ended) if ended else "-",
    )


def _duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


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
    sys.stdout.flush()
