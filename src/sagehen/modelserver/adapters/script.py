"""A model served by the user's own functions: SageMaker's `code/inference.py` contract."""

import contextlib
import inspect
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sagehen.errors import SagehenError
from sagehen.modelserver.adapters.code_space import CodeSpace, import_shared
from sagehen.modelserver.adapters.codecs import JSON, TEXT_TYPES
from sagehen.modelserver.adapters.context import Context
from sagehen.modelserver.adapters.handlers import Handlers
from sagehen.modelserver.adapters.pieces import bytes_of, in_pieces, is_in_pieces
from sagehen.modelserver.contract import Answer, Refusal, Request
from sagehen.modelserver.environment import Environment
from sagehen.modelserver.replies import by_model, traceback_answer
from sagehen.modelserver.streaming import Stream

__all__ = ["Script", "ScriptError", "ScriptModel", "find_script", "load_script"]

CODE_FOLDER = "code"
REQUIREMENTS = "requirements.txt"

_OPT_ML = "/opt/ml/"

log = logging.getLogger(__name__)


class ScriptError(SagehenError):
    """The user's script is missing or contradicts itself."""


@dataclass(frozen=True)
class Script:
    """Where a model's script is."""

    folder: Path
    file_name: str

    @property
    def module(self) -> str:
        return ".".join(Path(self.file_name).with_suffix("").parts)


def find_script(model_dir: Path, environment: Environment) -> Script | None:
    """The model's script, None if it has none.

    Raises ScriptError if SAGEMAKER_PROGRAM names one that is not there.
    """
    folders = [model_dir / CODE_FOLDER, *_submitted(environment)]
    for folder in folders:
        if (folder / environment.program).is_file():
            return Script(folder, environment.program)
    if environment.program_named:
        looked = ", ".join(str(folder) for folder in folders)
        raise ScriptError(
            f"SAGEMAKER_PROGRAM names {environment.program}, which is not in {looked}."
        )
    return None


def _submitted(environment: Environment) -> list[Path]:
    """The folder SAGEMAKER_SUBMIT_DIRECTORY names, where that is a local one."""
    named = environment.submit_directory.removeprefix("file://")
    if not named.startswith("/"):
        return []
    if named.startswith(_OPT_ML):
        return [environment.base_dir / named.removeprefix(_OPT_ML)]
    return [Path(named)]


def load_script(
    script: Script, model_dir: Path, defaults: Handlers, environment: Environment
) -> "ScriptModel":
    """Import the script and let it load its model. Raises what the user's code raises."""
    if (script.folder / REQUIREMENTS).exists():
        log.warning(
            "%s is not installed by Sagehen: its packages must be in the server's environment.",
            script.folder / REQUIREMENTS,
        )
    if not environment.multi_model:
        module = import_shared(script.folder, script.module)
        return ScriptModel(module, model_dir, defaults, environment)
    space = CodeSpace(script.folder)
    module = space.load(script.module)
    with space.active():  # unpickling looks for the model's classes by their module's name
        return ScriptModel(module, model_dir, defaults, environment)


class ScriptModel:
    """A loaded model and the functions that answer for it, the user's before the defaults."""

    def __init__(
        self, module: ModuleType, model_dir: Path, defaults: Handlers, environment: Environment
    ) -> None:
        self._input = _own(module, "input_fn") or defaults.input_fn
        self._predict = _own(module, "predict_fn") or defaults.predict_fn
        self._own_output = _own(module, "output_fn") is not None
        self._output = _own(module, "output_fn") or defaults.output_fn
        transform = _own(module, "transform_fn") or defaults.transform_of(module)
        self._transform = transform or self._three_steps
        _check_exclusive(module)
        self._default_accept = environment.default_accept or JSON
        self._error_status = defaults.error_status
        self._model_dir = model_dir
        context = Context({}, model_dir)
        if (prepare := _own(module, "pre_model_fn")) is not None:
            _run(prepare, context, str(model_dir))
        load = _own(module, "model_fn") or defaults.model_fn
        self._model = _run(load, context, str(model_dir))
        if (warm_up := _own(module, "model_warmup_fn")) is not None:
            _run(warm_up, context, str(model_dir), self._model)

    def call(self, request: Request) -> Answer:
        context = Context(request.headers, self._model_dir)
        accept = request.header(b"accept")
        if not accept or accept == "*/*":
            accept = self._default_accept
        try:
            return by_model(_answer(self._transformed(request, accept, context), accept, context))
        except (Refusal, MemoryError):
            raise
        except Exception as problem:
            return by_model(_failed(problem, self._error_status))

    def _transformed(self, request: Request, accept: str, context: Context) -> Any:
        content_type = request.header(b"content-type") or None
        data: Any = request.body
        if content_type in TEXT_TYPES:
            data = data.decode()
        return _run(self._transform, context, self._model, data, content_type, accept)

    def _three_steps(
        self, model: Any, data: Any, content_type: str, accept: str, context: Context
    ) -> Any:
        """What stands for `transform_fn`."""
        read = _run(self._input, context, data, content_type)
        prediction = _run(self._predict, context, read, model)
        if is_in_pieces(prediction) and not self._own_output:
            return prediction
        return _run(self._output, context, prediction, accept)

    def close(self) -> None:
        self._model = None


def _own(module: ModuleType, name: str) -> Callable[..., Any] | None:
    return getattr(module, name, None)


def _check_exclusive(module: ModuleType) -> None:
    steps = ("input_fn", "predict_fn", "output_fn")
    if _own(module, "transform_fn") and any(_own(module, step) for step in steps):
        raise ScriptError(
            "Cannot use transform_fn implementation in conjunction with "
            "input_fn, predict_fn, and/or output_fn implementation"
        )


def _run(function: Callable[..., Any], context: Context, *arguments: Any) -> Any:
    """Call the function, with the context after its arguments if it takes one more."""
    taken = len(inspect.signature(function).parameters)
    if taken == len(arguments):
        return function(*arguments)
    if taken == len(arguments) + 1:
        return function(*arguments, context)
    raise TypeError(
        f"{getattr(function, '__name__', function)} takes {taken} arguments "
        f"but {len(arguments)} were given."
    )


def _answer(result: Any, accept: str, context: Context) -> Answer:
    """The function's result as an answer: a body, whole or in pieces, and maybe its type."""
    content_type = accept
    if isinstance(result, tuple) and len(result) == 2:
        result, content_type = result
    body, stream = b"", None
    if is_in_pieces(result):
        # What goes wrong before there is anything to send is an error as any other.
        pieces = in_pieces(result)
        if first := next(pieces, b""):
            stream = Stream(first, pieces)
    else:
        body = bytes_of(result)
    return Answer(
        context.status,
        body,
        context.content_type or str(content_type),
        context.answer_headers,
        stream=stream,
    )


def _failed(problem: Exception, status: int) -> Answer:
    """`status` unless the exception has the toolkit's `status_code`; message, then traceback."""
    lines = "".join(traceback.format_exception(problem))
    log.error("The model's code raised.\n%s", lines)
    with contextlib.suppress(TypeError, ValueError):
        own = int(getattr(problem, "status_code", status))
        status = own if 400 <= own < 600 else 500
    return traceback_answer(status, str(getattr(problem, "message", problem)), lines)
