"""Formats tracebacks of the model's code without the server's own frames."""

from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, walk_tb

__all__ = ["raised_at_import", "user_traceback"]

_OWN_CODE = str(Path(__file__).parents[2]) + "/"
_IMPORTING = "<frozen importlib"


def user_traceback(error: BaseException) -> str:
    """Has the frames of the server and of the import system only if there are no others."""
    formatted = TracebackException.from_exception(error)
    for part in _chain(formatted):
        if frames := [frame for frame in part.stack if not _is_own(frame)]:
            part.stack = StackSummary.from_list(frames)
    return "".join(formatted.format())


def raised_at_import(error: BaseException) -> bool:
    """Whether the error was raised while a module was imported or parsed."""
    return isinstance(error, SyntaxError) or any(
        frame.f_code.co_name == "<module>" for frame, _ in walk_tb(error.__traceback__)
    )


def _chain(formatted: TracebackException | None) -> Iterator[TracebackException]:
    """An exception with its causes and contexts."""
    while formatted is not None:
        yield formatted
        formatted = formatted.__cause__ or formatted.__context__


def _is_own(frame: FrameSummary) -> bool:
    file = frame.filename
    return file.startswith((_OWN_CODE, _IMPORTING)) or file.endswith("/importlib/__init__.py")
