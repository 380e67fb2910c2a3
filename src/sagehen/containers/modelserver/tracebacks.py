"""Formats tracebacks of the model's code without the server's own frames."""

import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["user_traceback"]

_OURS = str(Path(__file__).parents[2]) + "/"
_IMPORTING = "<frozen importlib"


def user_traceback(problem: BaseException) -> str:
    """Starts at the user's first frame, if any."""
    kept = _users(problem.__traceback__) or problem.__traceback__
    return "".join(traceback.format_exception(type(problem), problem, kept))


def _users(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, _IMPORTING)) and not file.endswith("/importlib/__init__.py"):
            return frames
        frames = frames.tb_next
    return None
