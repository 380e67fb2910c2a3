"""Why attempts fail, in SageMaker's sentences, each with a hint."""

from collections.abc import Sequence
from pathlib import Path

from sagehen.agent.instances.failures import MAX_REASON_CHARACTERS, explain
from sagehen.base.errors import SagehenError

__all__ = [
    "JobFailed",
    "JobLost",
    "cannot_run",
    "code_failed",
    "disk_full",
    "download_failed",
    "internal_error",
    "no_capacity",
    "nothing_found",
    "out_of_memory",
    "script_failed",
    "upload_failed",
]

_MISSING = {
    "NoSuchKey": "The specified key does not exist.",
    "NoSuchBucket": "The specified bucket does not exist.",
}
_KINDS = ("AlgorithmError:", "ClientError:", "InternalServerError:")


class JobFailed(SagehenError):
    """The job's or its caller's fault; the message is the FailureReason."""

    def __init__(self, reason: str) -> None:
        super().__init__(_truncated(reason, MAX_REASON_CHARACTERS))


class JobLost(SagehenError):
    """The platform's fault, as when the store is away for too long; the message is the
    FailureReason."""

    def __init__(self, cause: str) -> None:
        super().__init__(internal_error(cause))


def internal_error(cause: str) -> str:
    message = "InternalServerError: We encountered an internal error. Please try again."
    return _truncated(f"{message} ({cause}", MAX_REASON_CHARACTERS - 1) + ")"


def nothing_found(url: str, bucket: str, store_error: str = "") -> str:
    suffix = f" Error message from S3: {store_error}" if store_error else ""
    return (
        f'ClientError: Data download failed:No S3 objects found under S3 URL "{url}" given in '
        "input data source. Please ensure that the bucket exists in the selected region, that "
        "objects exist under that S3 prefix, and that the role has "
        f'"s3:ListBucket" permissions on bucket "{bucket}".{suffix}'
    )


def download_failed(code: str, url: str) -> str:
    return f"ClientError: Data download failed:{code} (404): {_MISSING[code]} ({url})"


def upload_failed(url: str, reason: str) -> str:
    return f"ClientError: Artifact upload failed:{reason} ({url})"


def code_failed(url: str, reason: str) -> str:
    return (
        f"ClientError: The code archive {url} (hyperparameter sagemaker_submit_directory) cannot "
        f"be used, it has to be a tar.gz in S3: {reason}"
    )


def disk_full(consequence: str, free: int, size: int) -> str:
    return (
        f"ClientError: The disk that holds training jobs has too little room: {free} of its {size} "
        f"bytes are free. {consequence} Write less, make room on the disk, or keep objects "
        "elsewhere (object_store_url); VolumeSizeInGB, times the jobs that run at once, should "
        "fit on it."
    )


def cannot_run(cause: str) -> str:
    return (
        "AlgorithmError: CannotStartContainerError. Please ensure the container starts correctly "
        f"when invoked with 'docker run <image> train' ({cause})"
    )


def no_capacity(cause: str) -> str:
    return (
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
        f"different ML instance type. ({cause})"
    )


def script_failed(failure: Path, last_lines: Sequence[str], status: int) -> str:
    """Reads the beginning of `output/failure`."""
    message = _read_beginning(failure) or explain(last_lines)
    ending = f", exit code: {exit_code(status)}"
    kind = "" if message.startswith(_KINDS) else "AlgorithmError: "
    return _truncated(f"{kind}{message}", MAX_REASON_CHARACTERS - len(ending)) + ending


def out_of_memory(cause: str, status: int) -> str:
    return _truncated(
        "ClientError: Please use an instance type with more memory, or reduce the size of job "
        f"data processed on an instance. ({cause}), exit code: {exit_code(status)}",
        MAX_REASON_CHARACTERS,
    )


def exit_code(status: int) -> int:
    """Returns 128 plus the signal's number after a signal, like a shell or Docker."""
    return status if status >= 0 else 128 - status


def _read_beginning(path: Path) -> str:
    try:
        if not path.is_file():  # reading a pipe would block
            return ""
        with path.open("rb") as file:
            data = file.read(4 * MAX_REASON_CHARACTERS)
    except OSError:
        return ""
    return data.decode("utf-8", "replace").strip()


def _truncated(text: str, length: int) -> str:
    """Truncates, and replaces characters that JSON or PostgreSQL cannot hold."""
    return text[:length].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
