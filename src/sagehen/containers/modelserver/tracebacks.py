"""Formats tracebacks of the model's code without the server's own frames."""

import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["user_traceback"]

_OWN_CODE = str(Path(__file__).parents[2]) + "/"
_IMPORTING = "<frozen importlib"


def user_traceback(error: BaseException) -> str:
    """Starts at the user's first frame, if any."""
    frames = _skip_own_frames(error.__traceback__) or error.__traceback__
    return "".join(traceback.format_exception(type(error), error, frames))


def _skip_own_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith((_OWN_CODE, _IMPORTING)) and not file.endswith(
            "/importlib/__init__.py"
        ):
            return frames
        frames = frames.tb_next
    return None
