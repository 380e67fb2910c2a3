"""SageMaker's failure messages, each with a hint on the solution."""

import re
from collections.abc import Sequence

from sagehen.base.container_exits import hint
from sagehen.base.errors import ArtifactError, ArtifactRejected, SagehenError

__all__ = [
    "cannot_start",
    "explain",
    "failed_artifact",
    "failed_ping",
    "service_failure",
    "shorten",
]

LONGEST_REASON = 1024
SHOWN_LINES = 3

_OURS = re.compile(r" INFO sagehen\.containers\.modelserver\b")
"""the model server's own log lines"""
_REASON_FOLLOWS = re.compile(
    r" ERROR sagehen\.containers\.modelserver\.program: The model could not be loaded\.$"
)
_ROUTINE = re.compile(r"([-0-9:, ]+ )?INFO\b")
_NUMBERED = re.compile(r"container-[0-9]+")
_OWN_EXCEPTION = re.compile(r"^sagehen\.[\w.]+: ")
_PLACE = re.compile(r'^File "(?:.*/)?([^"/]+)", line ([0-9]+)$')
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning)\b(: .*)?$")


def failed_ping(hostname: str, variant: str, cause: str) -> str:
    # SageMaker calls a pipeline's unnamed containers "container-N".
    named = hostname if _NUMBERED.fullmatch(hostname) else f"{hostname} container"
    return shorten(
        f"The {named} for production variant {variant} did not pass the ping health "
        f"check. Please check CloudWatch logs for this endpoint. ({cause})"
    )


def cannot_start(variant: str, cause: str) -> str:
    return shorten(
        "CannotStartContainerError. Please ensure the model container for variant "
        f"{variant} starts correctly when invoked with 'docker run <image> serve' ({cause})"
    )


def failed_artifact(number: int, url: str, error: SagehenError) -> str:
    """`number` counts containers from 1."""
    if isinstance(error, ArtifactRejected):
        said = (
            f'Failed to extract model data archive for container "container_{number}" from URL '
            f'"{url}". Please ensure that the object located at the URL is a valid tar.gz archive.'
        )
    else:
        said = (
            f'Failed to download model data for container "container_{number}" from URL: "{url}".'
        )
        if type(error) is not ArtifactError:  # else this machine's disk is at fault
            said += (
                " Please ensure that there is an object located at the URL and that the role "
                "passed to CreateModel has permissions to download the object."
            )
    return shorten(f"{said} ({error})")


def service_failure(cause: str) -> str:
    return shorten(
        "Request to service failed. If failure persists after retry, contact customer support. "
        f"({cause})"
    )


def explain(lines: Sequence[str]) -> str:
    """Returns a log's last exception, or else its last lines."""
    printed = [line.strip() for line in lines if line.strip() and not _OURS.search(line)]
    of_the_model = _after_the_last(_REASON_FOLLOWS, printed)
    printed = of_the_model or printed
    for at, line in reversed(list(enumerate(printed))):
        if _EXCEPTION.match(line):
            place = _place(printed[:at]) if _is_of_syntax(line) else ""
            return line + place + (hint(line) or (_module_hint(line) if of_the_model else ""))
        if own := _OWN_EXCEPTION.match(line):
            return line[own.end() :]
    troubles = [line for line in printed if not _ROUTINE.match(line)]
    return " | ".join((troubles or printed)[-SHOWN_LINES:])


def _module_hint(line: str) -> str:
    if not line.startswith("ModuleNotFoundError: "):
        return ""
    return (
        " (pack the module into code, beside the script, or name its package in "
        "code/requirements.txt)"
    )


def _after_the_last(pattern: re.Pattern[str], lines: list[str]) -> list[str]:
    found = [at for at, line in enumerate(lines) if pattern.search(line)]
    return lines[found[-1] + 1 :] if found else []


def _is_of_syntax(line: str) -> bool:
    return line.startswith(("SyntaxError", "IndentationError", "TabError"))


def _place(above: list[str]) -> str:
    """Python prints it in a line above the error."""
    places = [found for line in above if (found := _PLACE.match(line))]
    return f" ({places[-1][1]}, line {places[-1][2]})" if places else ""


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 2] + "…)"
