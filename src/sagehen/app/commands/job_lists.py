"""Lists and prints jobs, for the commands of training jobs and of transform jobs."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sagehen.apply.client import Aws

__all__ = [
    "CountOption",
    "JobStatus",
    "StatusOption",
    "call_sagemaker",
    "duration_text",
    "json_text",
    "print_jobs",
    "print_line",
    "print_table",
    "time_text",
]


class JobStatus(StrEnum):
    """A TrainingJobStatus or TransformJobStatus of SageMaker."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


StatusOption = Annotated[
    JobStatus | None, typer.Option(help="Only jobs with this status.", case_sensitive=False)
]
CountOption = Annotated[
    int, typer.Option("--count", "-n", min=1, help="How many at most, the newest first.")
]


def print_jobs(
    aws: "Aws",
    kind: str,
    status: JobStatus | None,
    count: int,
    columns: Sequence[str],
    row: Callable[[dict[str, Any]], tuple[str, ...]],
    in_json: bool,
) -> None:
    """Prints jobs of a `kind` ("training" or "transform"), the newest first. Raises SagehenError.

    `row` makes the cells of one job from its summary.
    """
    jobs = list(islice(_jobs(aws, kind, status), count))
    if in_json:
        print_line(json_text(jobs))
    elif not jobs:
        print_line(f"There are no {kind} jobs" + (f" that are {status}." if status else "."))
    else:
        print_table([tuple(columns), *map(row, jobs)])


def _jobs(aws: "Aws", kind: str, status: JobStatus | None) -> Iterator[dict[str, Any]]:
    parameters: dict[str, Any] = {
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
        "MaxResults": 100,
    }
    if status is not None:
        parameters["StatusEquals"] = status.value
    while True:
        page = call_sagemaker(aws, f"list_{kind}_jobs", **parameters)
        yield from page[f"{kind.title()}JobSummaries"]
        if "NextToken" not in page:
            return
        parameters["NextToken"] = page["NextToken"]


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join(cells).rstrip())


def call_sagemaker(aws: "Aws", operation: str, **parameters: Any) -> dict[str, Any]:
    """Raises SagehenError."""
    from botocore.exceptions import BotoCoreError, ClientError

    from sagehen.apply.client import sagehen_error

    try:
        answer: dict[str, Any] = getattr(aws.client("sagemaker"), operation)(**parameters)
    except (ClientError, BotoCoreError) as error:
        raise sagehen_error(error) from error
    return answer


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration_text(seconds: float) -> str:
    hours, rest = divmod(max(0, int(seconds)), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def json_text(value: object) -> str:
    return json.dumps(
        value,
        indent=2,
        ensure_ascii=False,
        default=lambda moment: moment.astimezone(UTC).isoformat(),
    )


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
