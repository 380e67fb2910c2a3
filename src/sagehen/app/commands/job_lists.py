"""Lists and prints jobs, for the commands of training jobs and of transform jobs."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sagehen.app.commands.output import json_text, print_line, print_table

if TYPE_CHECKING:
    from sagehen.apply.client import Aws

__all__ = [
    "CountOption",
    "JobStatus",
    "StatusOption",
    "call_sagemaker",
    "print_jobs",
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


def call_sagemaker(aws: "Aws", operation: str, **parameters: Any) -> dict[str, Any]:
    """Raises SagehenError."""
    from botocore.exceptions import BotoCoreError, ClientError

    from sagehen.apply.client import sagehen_error

    try:
        answer: dict[str, Any] = getattr(aws.client("sagemaker"), operation)(**parameters)
    except (ClientError, BotoCoreError) as error:
        raise sagehen_error(error) from error
    return answer
