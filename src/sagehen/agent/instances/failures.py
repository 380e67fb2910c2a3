"""SageMaker's failure messages, each with a hint on the solution."""

import re
from collections.abc import Sequence

from sagehen.base.errors import ArtifactError, ArtifactRejected, SagehenError
from sagehen.base.user_code_errors import describe_exception
from sagehen.frame.container_specs import InstanceOwner, InstanceSpec

__all__ = [
    "cannot_start",
    "explain",
    "failed_artifact",
    "failed_ping",
    "no_capacity",
    "service_failure",
    "shorten",
]

MAX_REASON_CHARACTERS = 1024
SHOWN_LINES = 3

_SERVER_INFO = re.compile(r" INFO sagehen\.containers\.modelserver\b")
"""the model server's own log lines"""
_LOAD_FAILURE = re.compile(
    r" CRITICAL sagehen\.containers\.modelserver\.program: The model could not be loaded: (.+)$"
)
_ROUTINE = re.compile(r"([-0-9:, ]+ )?INFO\b")
_NUMBERED = re.compile(r"container-[0-9]+")
_OWN_EXCEPTION = re.compile(r"^sagehen\.[\w.]+: ")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning)\b(: .*)?$")
_TRACE = re.compile(r"at \S|goroutine \d+ \[")
"""a line of a stack trace of Node.js, Java or Go, below its error"""

_WHOSE_LOGS = {InstanceOwner.ENDPOINT: "endpoint", InstanceOwner.TRANSFORM_JOB: "job"}


def failed_ping(hostname: str, spec: InstanceSpec, cause: str) -> str:
    # SageMaker calls a pipeline's unnamed containers "container-N".
    named = hostname if _NUMBERED.fullmatch(hostname) else f"{hostname} container"
    return shorten(
        f"The {named} for {spec.title} did not pass the ping health "
        f"check. Please check CloudWatch logs for this {_WHOSE_LOGS[spec.owner]}. ({cause})"
    )


def cannot_start(spec: InstanceSpec, cause: str) -> str:
    return shorten(
        "CannotStartContainerError. Please ensure the model container for "
        f"{spec.title.removeprefix('production ')} starts correctly when invoked with "
        f"'docker run <image> serve' ({cause})"
    )


def failed_artifact(number: int, url: str, error: SagehenError) -> str:
    """`number` counts containers from 1."""
    if isinstance(error, ArtifactRejected):
        message = (
            f'Failed to extract model data archive for container "container_{number}" from URL '
            f'"{url}". Please ensure that the object located at the URL is a valid tar.gz archive.'
        )
    else:
        message = (
            f'Failed to download model data for container "container_{number}" from URL: "{url}".'
        )
        if type(error) is not ArtifactError:  # else this machine's disk is at fault
            message += (
                " Please ensure that there is an object located at the URL and that the role "
                "passed to CreateModel has permissions to download the object."
            )
    return shorten(f"{message} ({error})")


def no_capacity(cause: str) -> str:
    # SageMaker's sentence; its SDK looks for "CapacityError".
    return shorten(
        "CapacityError: Unable to provision requested ML compute capacity due to "
        "InsufficientInstanceCapacity error. Please retry using a different ML instance type or "
        f"after some time. ({cause})"
    )


def service_failure(cause: str) -> str:
    return shorten(
        "Request to service failed. If failure persists after retry, contact customer support. "
        f"({cause})"
    )


def explain(lines: Sequence[str]) -> str:
    """Returns why a log's program ended: what our model server says, or else the log's last
    exception, or else its last lines."""
    printed = [line.strip() for line in lines if line.strip() and not _SERVER_INFO.search(line)]
    for index, line in reversed(list(enumerate(printed))):
        if load_failure := _LOAD_FAILURE.search(line):
            return load_failure[1]
        if _EXCEPTION.match(line):
            return describe_exception(line, printed[:index])
        if prefix := _OWN_EXCEPTION.match(line):
            return line[prefix.end() :]
        if printed[index + 1 :] and _TRACE.match(printed[index + 1]) and not _TRACE.match(line):
            return line
    unusual = [line for line in printed if not _ROUTINE.match(line)]
    return " | ".join((unusual or printed)[-SHOWN_LINES:])


def shorten(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARACTERS else text[: MAX_REASON_CHARACTERS - 2] + "…)"
