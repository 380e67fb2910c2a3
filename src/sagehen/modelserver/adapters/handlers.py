"""The functions that answer where a script leaves them out, as the inference toolkit's do."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sagehen.errors import SagehenError
from sagehen.modelserver.adapters.codecs import UnsupportedFormat, decode, encode
from sagehen.modelserver.adapters.media import media_type
from sagehen.modelserver.contract import Answer
from sagehen.modelserver.replies import traceback_answer
from sagehen.modelserver.tracebacks import user_traceback

__all__ = ["Handlers", "encode_accepted", "missing", "toolkit_error"]


def toolkit_error(problem: Exception) -> Answer:
    """The inference toolkit's answer where a script raises: 500, unless the exception has a
    `status_code`, as the toolkit's own have; the message, then the traceback."""
    status = 500
    with contextlib.suppress(TypeError, ValueError):
        own = int(getattr(problem, "status_code", status))
        status = own if 400 <= own < 600 else 500
    message = str(getattr(problem, "message", problem))
    return traceback_answer(status, message, user_traceback(problem))


@dataclass(frozen=True)
class Handlers:
    """Defaults for a script's functions."""

    model_fn: Callable[..., Any]
    input_fn: Callable[..., Any]
    predict_fn: Callable[..., Any]
    output_fn: Callable[..., Any]
    transform_of: Callable[[ModuleType], Callable[..., Any] | None] = lambda _: None
    """What a script has in the place of `transform_fn`, under names of a framework's own."""
    failed: Callable[[Exception], Answer] = toolkit_error
    """The answer to a request whose script raises."""
    needed: tuple[str, ...] = ()
    """What a script without `transform_fn` has to have."""

    def check_whole(self, module: ModuleType) -> None:
        """Raises MissingFunction where a request could not be answered: better now than then."""
        if hasattr(module, "transform_fn") or self.transform_of(module) is not None:
            return
        for name in self.needed:
            if not hasattr(module, name):
                raise MissingFunction(name)

    @classmethod
    def of_toolkit(cls) -> "Handlers":
        functions = missing("model_fn"), decode, missing("predict_fn"), encode_accepted
        return cls(*functions, needed=("predict_fn",))


def missing(name: str) -> Callable[..., Any]:
    """A function in the place of one that the user has to write."""

    def absent(_first: Any, _second: Any = None) -> Any:
        raise MissingFunction(name)

    def absent_model(_model_dir: str) -> Any:
        raise MissingFunction(name)

    return absent_model if name == "model_fn" else absent


class MissingFunction(SagehenError):
    """The script lacks a function that has no default."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Please provide a {name} implementation. "
            f"See documentation for {name} at https://sagemaker.readthedocs.io/en/stable/"
        )


def encode_accepted(prediction: Any, accept: str) -> tuple[str | bytes, str]:
    """Encode as the first of the accepted types that there is an encoder for."""
    for content_type in map(media_type, accept.split(",")):
        try:
            return encode(prediction, content_type), content_type
        except UnsupportedFormat:
            continue
    raise UnsupportedFormat(accept)
