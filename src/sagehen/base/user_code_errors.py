"""Says in one line which exception of the user's code ended a program, and where it was raised."""

import os
import re
from collections.abc import Sequence

from sagehen.base.container_exits import hint

__all__ = ["describe_exception", "locate", "missing_module_hint", "without_traceback"]

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "([^"]+)", line ([0-9]+)(?:, in (.+))?$')
_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_LIBRARIES = ("<", os.path.dirname(os.path.dirname(__file__)) + os.sep)
_LIBRARY_FOLDERS = re.compile(r"/(site-packages|dist-packages|lib/python[0-9.]+)/")


def without_traceback(text: str) -> str:
    """Returns what stands before the traceback in an answer of a model server."""
    return text.partition(f"\n{_TRACEBACK}")[0].strip()


def describe_exception(line: str, above: Sequence[str], requirements: str = "") -> str:
    """Returns the traceback's last line with the place in the user's code, and a hint.

    Args:
        line: such as "ValueError: no weights".
        above: the traceback's lines before it.
        requirements: the file that may name a missing package; "" for no such hint.
    """
    place = locate(above, is_syntax_error=line.startswith(_SYNTAX_ERRORS))
    advice = hint(line) or (missing_module_hint(line, requirements) if requirements else "")
    return line + (f" ({place})" if place else "") + advice


def locate(lines: Sequence[str], *, is_syntax_error: bool = False) -> str:
    """Returns "inference.py, line 3" for the last frame of a traceback that is no library's.

    The frame of a syntax error is the faulty file, whoever wrote it.
    """
    starts = [at for at, line in enumerate(lines) if line.strip() == _TRACEBACK]
    frames = [
        (match[1], match[2])
        for line in lines[starts[-1] if starts else 0 :]
        if (match := _FRAME.match(line))
    ]
    for file, number in reversed(frames):
        if is_syntax_error or not _is_library(file):
            return f"{_short_path(file)}, line {number}"
    return ""


def missing_module_hint(text: str, requirements: str) -> str:
    match = _MISSING_MODULE.search(text)
    if match is None:
        return ""
    module = match[1].partition(".")[0]
    return (
        f" (pack {module} beside the script, name its package in {requirements}, "
        "or install it where Sagehen runs)"
    )


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or _LIBRARY_FOLDERS.search(file) is not None


def _short_path(file: str) -> str:
    """Returns the path below the folder `code`, or else the file's name."""
    _, separator, below = file.rpartition("/code/")
    return below if separator else os.path.basename(file)
