"""Texts for `output/failure` when a script cannot start or fails."""

import re

from sagehen.base.container_exits import hint
from sagehen.base.errors import SagehenError
from sagehen.base.user_code_errors import locate, missing_module_hint

__all__ = ["CannotRun", "describe_failure"]

MESSAGE_CHARACTERS = 600
"""of SageMaker's 1,024: the rest is for the command"""
KILLED = 137
_TRACEBACK = "Traceback (most recent call last):"
_LINES = 5
_REQUIREMENTS = "the requirements.txt beside it"
_TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_TORCHRUN_LOG = re.compile(r"[A-Z]\d{4} \d\d:\d\d:\d\d\.\d+ .*torch/distributed/")
_RANK = re.compile(r"^\[rank\d+\]: ")


class CannotRun(SagehenError):
    """The script is not started; the message says why and what to do."""


def describe_failure(status: int, command: list[str], errors: str) -> str:
    """Describes a failed script in the words of AWS's toolkit.

    Args:
        status: the script's, or 128 plus the signal's number.
        errors: the end of its standard error.
    """
    lines = ["ExecuteUserScriptError:", f"ExitCode {status}", f'ErrorMessage "{_message(errors)}"']
    if status == KILLED:
        lines.append('ExtraInfo "OutOfMemory: Process killed by SIGKILL (signal 9)"')
    lines.append(f'Command "{" ".join(command)}"')
    return "\n".join(lines)


def _before_torchrun(lines: list[str]) -> list[str]:
    """Drops torchrun's report, which follows the script's lines."""
    ends = [at for at, line in enumerate(lines) if line.startswith(_TORCHRUN)]
    starts = [at for at, line in enumerate(lines[: ends[-1]]) if line == _TRACEBACK] if ends else []
    text = [_RANK.sub("", line) for line in lines[: starts[-1]]] if starts else []
    return [line for line in text if not _TORCHRUN_LOG.match(line)] or lines


def _message(errors: str) -> str:
    lines = [line.rstrip() for line in errors.replace("\r", "\n").splitlines() if line.strip()]
    lines = _before_torchrun(lines)
    chosen, place = lines[-_LINES:], ""
    if _TRACEBACK in lines:
        # It follows the last traceback's indented frames.
        last = len(lines) - lines[::-1].index(_TRACEBACK)
        raised = next((n for n in range(last, len(lines)) if not lines[n].startswith(" ")), None)
        if raised is not None:
            chosen, place = lines[raised:], locate(lines[:raised])
    text = "\n".join(chosen)[:MESSAGE_CHARACTERS]
    advice = hint(text) or missing_module_hint(text, _REQUIREMENTS)
    return text + (f" ({place})" if place else "") + advice
