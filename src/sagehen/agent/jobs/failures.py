"""Why attempts fail, in SageMaker's sentences, each followed by what helps to mend it."""

from collections.abc import Sequence
from pathlib import Path

from sagehen.agent.failures import LONGEST_REASON, explain
from sagehen.errors import SagehenError

__all__ = [
    "JobFailed",
    "JobLost",
    "cannot_run",
    "internal_error",
    "out_of_memory",
    "script_failed",
]

_KINDS = ("AlgorithmError:", "ClientError:", "InternalServerError:")


class JobFailed(SagehenError):
    """By its own or its caller's fault; the message is its FailureReason."""

    def __init__(self, reason: str) -> None:
        super().__init__(_cut(reason, LONGEST_REASON))


class JobLost(SagehenError):
    """By ours; the message is its FailureReason."""

    def __init__(self, cause: str) -> None:
        super().__init__(internal_error(cause))


def internal_error(cause: str) -> str:
    said = "InternalServerError: We encountered an internal error. Please try again."
    return _cut(f"{said} ({cause}", LONGEST_REASON - 1) + ")"


def cannot_run(cause: str) -> str:
    """Its command is none that can be started."""
    return (
        "AlgorithmError: CannotStartContainerError. Please ensure the container starts correctly "
        f"when invoked with 'docker run <image> train' ({cause})"
    )


def script_failed(failure: Path, last_lines: Sequence[str], status: int) -> str:
    """It ended with another status than 0. Reads `output/failure`, the beginning of it."""
    said = _read_beginning(failure) or explain(last_lines)
    ending = f", exit code: {exit_code(status)}"
    kind = "" if said.startswith(_KINDS) else "AlgorithmError: "
    return _cut(f"{kind}{said}", LONGEST_REASON - len(ending)) + ending


def out_of_memory(cause: str, status: int) -> str:
    """It was ended because there was not enough for it."""
    return _cut(
        "ClientError: Please use an instance type with more memory, or reduce the size of job "
        f"data processed on an instance. ({cause}), exit code: {exit_code(status)}",
        LONGEST_REASON,
    )


def exit_code(status: int) -> int:
    """As a shell or Docker has it: of who was ended by a signal, 128 and its number."""
    return status if status >= 0 else 128 - status


def _read_beginning(path: Path) -> str:
    try:
        if not path.is_file():  # It may be a pipe, which would be waited for.
            return ""
        with path.open("rb") as file:
            data = file.read(4 * LONGEST_REASON)
    except OSError:
        return ""
    return data.decode("utf-8", "replace").strip()


def _cut(text: str, length: int) -> str:
    return text[:length]
