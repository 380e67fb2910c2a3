"""`sagehen transform`: lists, describes, stops and watches transform jobs."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol
from urllib.parse import quote

import typer

from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.job_lists import (
    CountOption,
    JobStatus,
    StatusOption,
    call_sagemaker,
    duration_text,
    json_text,
    print_jobs,
    print_line,
    time_text,
)
from sagehen.base.config import load_settings
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

__all__ = ["looks", "transform_app"]

transform_app = typer.Typer(
    help="List, describe, stop and watch transform jobs.", no_args_is_help=True
)

JobArgument = Annotated[str, typer.Argument(help="A transform job.")]

_ENDED = ("Completed", "Failed", "Stopped")
LONGEST_AWAY_SECONDS = 60.0


class TerminalClock(Protocol):
    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


SYSTEM_CLOCK: TerminalClock = time


_COLUMNS = ("Name", "Status", "Created (UTC)", "Ended (UTC)")


@transform_app.command("list")
def show_all(
    status: StatusOption = None,
    count: CountOption = 50,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List transform jobs, the newest first."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        aws = connect_home(home, config)
        print_jobs(aws, "transform", status, count, _COLUMNS, _row, as_json)


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
            print_line(json_text(progress))
            return
        for label, value in _fields_of(progress):
            print_line(f"{label}: {value}")


@transform_app.command()
def stop(name: JobArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Stop a transform job; outputs of finished objects stay."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        call_sagemaker(connect_home(home, config), "stop_transform_job", TransformJobName=name)
        print_line(f"{name} is stopping.")


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
        answers = looks(lambda: _progress(server_home, name), interval)
        last = _show_bar(name, answers) if out.is_terminal else _show_lines(answers)
        print_line(" ".join(filter(None, (f"{name} is {last['status']}.", last["failure_reason"]))))
    if last["status"] != JobStatus.COMPLETED:
        raise typer.Exit(1)


def looks(
    look: Callable[[], dict[str, Any]], interval: float, clock: TerminalClock = SYSTEM_CLOCK
) -> Iterator[dict[str, Any]]:
    """Yields a job's progress until it has ended, at least once.

    A server that is started again meanwhile goes on with the job. Raises Unavailable if it does not
    answer for too long, or not the first time.
    """
    answered_at: float | None = None
    while True:
        try:
            progress = look()
        except Unavailable:
            if answered_at is None or clock.monotonic() - answered_at > LONGEST_AWAY_SECONDS:
                raise
        else:
            answered_at = clock.monotonic()
            yield progress
            if progress["status"] in _ENDED:
                return
        clock.sleep(interval)


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
            print_line(line)
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
        parts.append(f"about {duration_text(progress['seconds_left'])} left")
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
            yield label, time_text(datetime.fromtimestamp(progress[member], UTC))
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


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    ended = job.get("TransformEndTime")
    return (
        job["TransformJobName"],
        job["TransformJobStatus"],
        time_text(job["CreationTime"]),
        time_text(ended) if ended else "-",
    )
