"""Default functions and context for scripts, as in the inference toolkit, and streamed answers."""

import contextlib
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.shared.codecs import (
    UnsupportedFormat,
    decode,
    encode,
    media_type,
)
from sagehen.containers.modelserver.contract import ModelAnswer, Refusal
from sagehen.containers.modelserver.serving.responses import traceback_answer
from sagehen.containers.modelserver.tracebacks import user_traceback

__all__ = [
    "Context",
    "Handlers",
    "bytes_of",
    "encode_accepted",
    "is_streamed",
    "iter_pieces",
    "missing",
    "toolkit_error",
]


def toolkit_error(error: Exception) -> ModelAnswer:
    """Answers with the exception's `status_code` or 500, its message and traceback."""
    status = 500
    with contextlib.suppress(TypeError, ValueError):
        code = int(getattr(error, "status_code", status))
        status = code if 400 <= code < 600 else 500
    message = str(getattr(error, "message", error))
    return traceback_answer(status, message, user_traceback(error))


@dataclass(frozen=True)
class Handlers:
    """Defaults for a script's functions."""

    model_fn: Callable[..., Any]
    input_fn: Callable[..., Any]
    predict_fn: Callable[..., Any]
    output_fn: Callable[..., Any]
    transform_of: Callable[[ModuleType], Callable[..., Any] | None] = lambda _: None
    """Finds a framework's replacement for `transform_fn`."""
    failed: Callable[[Exception], ModelAnswer] = toolkit_error
    refuses_bodies: bool = True
    """Whether a body that the default `input_fn` cannot read is the caller's error, and a type that
    the default `output_fn` cannot write; AWS's toolkit answers 500 to both."""
    needed: tuple[str, ...] = ()
    """Required of a script without `transform_fn`."""

    def check_complete(self, module: ModuleType) -> None:
        """Raises MissingFunction."""
        if hasattr(module, "transform_fn") or self.transform_of(module) is not None:
            return
        for name in self.needed:
            if not hasattr(module, name):
                raise MissingFunction(name)

    @property
    def default_input(self) -> Callable[..., Any]:
        """The default `input_fn`, which raises Refusal for a body that it cannot read."""
        return _refusing(self.input_fn, 415, 400) if self.refuses_bodies else self.input_fn

    @property
    def default_output(self) -> Callable[..., Any]:
        """The default `output_fn`, which raises Refusal for a type that it cannot write."""
        return _refusing(self.output_fn, 406, None) if self.refuses_bodies else self.output_fn

    @classmethod
    def of_toolkit(cls) -> "Handlers":
        functions = missing("model_fn"), decode, missing("predict_fn"), encode_accepted
        return cls(*functions, needed=("predict_fn",))


def _refusing(
    convert: Callable[..., Any], type_status: int, data_status: int | None
) -> Callable[..., Any]:
    """Raises Refusal where `convert` raises for the type, and with `data_status` for the data."""

    @functools.wraps(convert)
    def convert_or_refuse(data: Any, content_type: Any, *context: Any) -> Any:
        try:
            return convert(data, content_type, *context)
        except UnsupportedFormat as error:
            raise Refusal(type_status, str(error)) from error
        except Exception as error:
            if data_status is None or _is_own_fault(error):
                raise
            raise Refusal(data_status, f"The body is not {content_type}: {error}") from error

    return convert_or_refuse


def _is_own_fault(error: Exception) -> bool:
    """Returns whether an error is not the body's, such as that of a GPU without memory."""
    # RecursionError, which is a RuntimeError, is that of a body nested too deeply.
    is_of_body = isinstance(error, RecursionError)
    return isinstance(error, MemoryError | RuntimeError | SagehenError) and not is_of_body


def missing(name: str) -> Callable[..., Any]:
    def absent(_first: Any, _second: Any = None) -> Any:
        raise MissingFunction(name)

    def absent_model(_model_dir: str) -> Any:
        raise MissingFunction(name)

    return absent_model if name == "model_fn" else absent


class MissingFunction(SagehenError):
    """The script lacks a function without a default."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Please provide a {name} implementation. "
            f"See documentation for {name} at https://sagemaker.readthedocs.io/en/stable/"
        )


def encode_accepted(prediction: Any, accept: str) -> tuple[str | bytes, str]:
    """Uses the first accepted type that has an encoder."""
    for content_type in map(media_type, accept.split(",")):
        try:
            return encode(prediction, content_type), content_type
        except UnsupportedFormat:
            continue
    raise UnsupportedFormat(accept, of_answer=True)


class Context:
    """One request's headers and its answer's.

    Methods take an index in a batch, which has one request here.
    """

    def __init__(
        self, headers: Mapping[bytes, bytes], model_dir: Path, gpu: int | None = None
    ) -> None:
        self._headers = headers
        self.system_properties: dict[str, Any] = {
            "model_dir": str(model_dir),
            "gpu_id": gpu,
            "batch_size": 1,
        }
        self.model_name = model_dir.parent.name
        self.manifest: dict[str, Any] = {}
        self.status = 200
        self.content_type = ""
        self.answer_headers: tuple[tuple[str, str], ...] = ()
        self._id = ""

    @property
    def request_processor(self) -> list["Context"]:
        return [self]

    def get_request_id(self, idx: int = 0) -> str:
        self._id = self._id or str(uuid.uuid4())
        return self._id

    def get_request_header(self, idx: int, key: str) -> str | None:
        """Ignores the name's case."""
        value = self._headers.get(key.lower().encode("latin-1", "replace"))
        return None if value is None else value.decode("latin-1")

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        return self.get_request_properties()

    def get_request_properties(self) -> dict[str, str]:
        return {
            name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers.items()
        }

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Sets a header such as `X-Amzn-SageMaker-Custom-Attributes`."""
        if key.lower() in ("content-length", "connection", "transfer-encoding"):
            raise ValueError(f"{key} is the server's own header.")
        if key.lower() == "content-type":
            self.content_type = value
        else:
            self.answer_headers += ((key, str(value)),)

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.content_type = value

    def get_response_content_type(self, idx: int = 0) -> str:
        return self.content_type

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Raises ValueError unless the status is final: clients would wait for another."""
        if not 200 <= int(code) < 600:
            raise ValueError(f"The status is {code}; it must be from 200 to 599.")
        self.status = int(code)


_END = object()


def is_streamed(result: Any) -> bool:
    """Whether the result is a sync or async iterator."""
    return isinstance(result, Iterator | AsyncIterator)


def iter_pieces(result: Iterator[Any] | AsyncIterator[Any]) -> Generator[bytes]:
    """Yields non-empty pieces and closes `result`. Raises TypeError."""
    pieces = _awaited(result) if isinstance(result, AsyncIterator) else result
    try:
        for piece in pieces:
            if data := bytes_of(piece):
                yield data
    finally:
        if (close := getattr(pieces, "close", None)) is not None:
            close()


def bytes_of(text: Any) -> bytes:
    """Raises TypeError."""
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes | bytearray | memoryview):
        return bytes(text)
    raise TypeError(
        f"The script's answer is of type {type(text).__name__}; output_fn (or transform_fn) "
        "must return str or bytes, an iterator of them, or a tuple of one of these and its "
        "content type."
    )


def _awaited(pieces: AsyncIterator[Any]) -> Generator[Any]:
    """Runs its own event loop, as the thread has none."""
    # Imports asyncio: a sixth of a worker's start time, rarely needed.
    from sagehen.base.python310 import Runner

    with Runner() as runner:
        while (piece := runner.run(_next(pieces))) is not _END:
            yield piece


async def _next(pieces: AsyncIterator[Any]) -> Any:
    return await anext(pieces, _END)
