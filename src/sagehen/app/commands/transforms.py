"""`sagehen transform`: lists, shows, stops and watches transform jobs."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Protocol
from urllib.parse import quote

import typer

from sagehen.app.commands.completion import complete_transforms
from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.job_lists import (
    CountOption,
    JobStatus,
    StatusOption,
    call_sagemaker,
    print_jobs,
)
from sagehen.app.commands.output import duration_text, json_text, print_line, time_text
from sagehen.base.config import load_settings
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

__all__ = ["looks", "transform_app"]

transform_app = typer.Typer(help="List, show, stop and watch transform jobs.", no_args_is_help=True)

JobArgument = Annotated[
    str, typer.Argument(help="A transform job.", autocompletion=complete_transforms)
]

_MANY_RECORDS = 1000
_LOG_LINES = 3
_SINGLE_RECORDS = (
    "Each record is a request of its own. With BatchStrategy=MultiRecord the job is faster, if the "
    "model takes several records in a request."
)
_ENDED = ("Completed", "Failed", "Stopped")
LONGEST_AWAY_SECONDS = 60.0


class TerminalClock(Protocol):
    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


SYSTEM_CLOCK: TerminalClock = time


_COLUMNS = ("Name", "Status", "Created", "Ended")


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
@transform_app.command("describe", hidden=True)
def show(
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
        for line in _log_of_failure(_home(home, config), progress):
            print_line(f"  {line}")


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
        answers = _advising(looks(lambda: _progress(server_home, name), interval))
        last = _show_bar(name, answers) if out.is_terminal else _show_lines(answers)
        print_line(" ".join(filter(None, (f"{name} is {last['status']}.", last["failure_reason"]))))
        for line in _log_of_failure(server_home, last):
            print_line(f"  {line}")
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


def _advising(looks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Prints once what would make a slow job faster."""
    is_printed = False
    for progress in looks:
        if not is_printed and _is_single(progress):
            is_printed = True
            out.print(_SINGLE_RECORDS)
        yield progress


def _is_single(progress: dict[str, Any]) -> bool:
    has_many = progress.get("records", 0) >= _MANY_RECORDS
    return progress.get("batch_strategy") == "SingleRecord" and has_many


def _log_of_failure(home: Home, progress: dict[str, Any]) -> list[str]:
    """Returns the last lines of the job's own log, where SageMaker's reason only names the log."""
    from sagehen.app.commands.cluster_logs import is_in_cluster, read_cluster_logs
    from sagehen.app.commands.logs import Selection, read_logs

    name, reason = progress["name"], progress["failure_reason"] or ""
    if "See job logs" not in reason:
        return []
    selection = Selection(lines=_LOG_LINES, pattern=re.compile(r"\[sagemaker logs\]: .*/.*: ."))
    try:
        if is_in_cluster(home):
            lines = read_cluster_logs(
                home, name, selection, follow=False, job=True, warn=lambda text: None
            )
        else:
            lines = read_logs(home, name, selection, follow=False, job=True)
        return list(lines)
    except SagehenError:
        return []  # They are a help, and may be deleted.


def _counts(progress: dict[str, Any]) -> str:
    known = str(progress["objects_known"]) + ("" if progress["is_listed"] else "+")
    parts = [f"{progress['objects']} of {known} objects", f"{progress['records']:,} records"]
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
            yield label, time_text(progress[member])
    yield "Progress", _counts(progress)
    yield "Input", f"{progress['input_bytes']:,} of {progress['input_bytes_known']:,} bytes"
    if progress["batch_strategy"] is not None:
        yield (
            "Settings",
            f"MaxConcurrentTransforms {progress['max_concurrent_transforms']}, "
            f"MaxPayloadInMB {progress['max_payload_in_mb']}, {progress['batch_strategy']}",
        )
    if _is_single(progress):
        yield "Advice", _SINGLE_RECORDS
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
