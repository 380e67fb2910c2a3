"""Serves a model by SageMaker's `code/inference.py` contract."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.containers.aws_modules_path import add_aws_modules
from sagehen.containers.modelserver.adapters.script.code_space import CodeSpace, import_shared
from sagehen.containers.modelserver.adapters.script.handlers import (
    Context,
    Handlers,
    bytes_of,
    is_streamed,
    iter_pieces,
)
from sagehen.containers.modelserver.adapters.script.model_builder import prepare_model_builder
from sagehen.containers.modelserver.adapters.shared.codecs import JSON, TEXT_TYPES, accepted_type
from sagehen.containers.modelserver.contract import (
    BatchModel,
    CallModel,
    ModelAnswer,
    ModelRequest,
    Refusal,
)
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.gpus import use_gpu
from sagehen.containers.modelserver.serving.responses import by_model
from sagehen.containers.modelserver.tracebacks import user_traceback

__all__ = [
    "ScriptAdapter",
    "ScriptError",
    "ScriptModel",
    "UserScript",
    "find_requirements",
    "find_script",
    "load_script",
    "misplaced_script",
]

CODE_FOLDER = "code"
REQUIREMENTS = "requirements.txt"

_OPT_ML = "/opt/ml/"

log = logging.getLogger(__name__)


class ScriptAdapter(ABC):
    """Base of adapters whose models may have a script, which runs in worker processes."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def needs_worker(self, model_dir: Path) -> bool:
        return find_script(model_dir, self._environment) is not None

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        """Loads the script if there is one, else the framework's model."""
        script = find_script(model_dir, self._environment)
        if script is None:
            return self._load_model(model_dir)
        return load_script(script, model_dir, self._handlers(script), self._environment)

    @abstractmethod
    def _load_model(self, model_dir: Path) -> BatchModel | CallModel:
        """Loads a model without a script."""

    @abstractmethod
    def _handlers(self, script: "UserScript") -> Handlers:
        """Returns the functions for those that the script lacks."""


class ScriptError(SagehenError):
    """The user's script is missing or inconsistent."""


@dataclass(frozen=True)
class UserScript:
    """The location of a model's script."""

    folder: Path
    file_name: str

    @property
    def module(self) -> str:
        return ".".join(Path(self.file_name).with_suffix("").parts)


def find_script(model_dir: Path, environment: Environment) -> UserScript | None:
    """Raises ScriptError if SAGEMAKER_PROGRAM names a missing script."""
    folders = [model_dir / CODE_FOLDER, *_submit_folder(environment)]
    for folder in folders:
        if (folder / environment.program).is_file():
            return UserScript(folder, environment.program)
    if environment.program_named:
        searched = ", ".join(str(folder) for folder in folders)
        raise ScriptError(
            f"SAGEMAKER_PROGRAM names {environment.program}, which is not in {searched}."
        )
    return None


def misplaced_script(model_dir: Path, environment: Environment) -> str:
    """Returns a warning about a script that will not run, else ""."""
    name = environment.program
    if not (model_dir / name).is_file() or find_script(model_dir, environment) is not None:
        return ""
    return (
        f"{name} at the top of the archive is not run: move it into the folder {CODE_FOLDER}, "
        f"to {CODE_FOLDER}/{name}."
    )


def find_requirements(model_dir: Path, environment: Environment) -> Path | None:
    script = find_script(model_dir, environment)
    file = (script.folder if script else model_dir / CODE_FOLDER) / REQUIREMENTS
    return file if file.is_file() else None


def _submit_folder(environment: Environment) -> list[Path]:
    """Returns SAGEMAKER_SUBMIT_DIRECTORY if it is a local folder."""
    folder = environment.submit_directory.removeprefix("file://")
    if not folder.startswith("/"):
        return []
    if folder.startswith(_OPT_ML):
        return [environment.base_dir / folder.removeprefix(_OPT_ML)]
    return [Path(folder)]


def load_script(
    script: UserScript, model_dir: Path, defaults: Handlers, environment: Environment
) -> "ScriptModel":
    """Raises what the user's code raises."""
    add_aws_modules()
    prepare_model_builder(script.folder / script.file_name)
    if not environment.multi_model:
        module = import_shared(script.folder, script.module)
        return ScriptModel(module, model_dir, defaults, environment)
    space = CodeSpace(script.folder)
    module = space.load(script.module)
    with space.active():  # unpickling finds classes by module name
        return ScriptModel(module, model_dir, defaults, environment)


class ScriptModel:
    """Combines a model with the user's functions or their defaults."""

    def __init__(
        self, module: ModuleType, model_dir: Path, defaults: Handlers, environment: Environment
    ) -> None:
        _check_exclusive(module)
        self._input = _with_arguments(
            _user_function(module, "input_fn") or defaults.default_input, 2
        )
        self._predict = _with_arguments(
            _user_function(module, "predict_fn") or defaults.predict_fn, 2
        )
        self._has_output_fn = _user_function(module, "output_fn") is not None
        self._output = _with_arguments(
            _user_function(module, "output_fn") or defaults.default_output, 2
        )
        transform = _user_function(module, "transform_fn") or defaults.transform_of(module)
        self._transform = _with_arguments(transform, 4) if transform else self._three_steps
        self._default_accept = environment.default_accept or JSON
        self._failed = defaults.failed
        self._model_dir = model_dir
        self._gpu = environment.gpu
        use_gpu(environment.gpu, environment.gpu_fraction, environment.workers)
        context = Context({}, model_dir, self._gpu)
        if (prepare := _user_function(module, "pre_model_fn")) is not None:
            _with_arguments(prepare, 1)(str(model_dir), context)
        self._model = _with_arguments(_user_function(module, "model_fn") or defaults.model_fn, 1)(
            str(model_dir), context
        )
        # After model_fn, because its errors come first.
        defaults.check_complete(module)
        if (warm_up := _user_function(module, "model_warmup_fn")) is not None:
            _with_arguments(warm_up, 2)(str(model_dir), self._model, context)

    def call(self, request: ModelRequest) -> ModelAnswer:
        context = Context(request.headers, self._model_dir, self._gpu)
        accept = accepted_type(request.header(b"accept"), self._default_accept)
        try:
            return by_model(
                _to_answer(self._transformed(request, accept, context), accept, context)
            )
        except (Refusal, MemoryError):
            raise
        except Exception as error:
            log.error("The model's code raised.\n%s", user_traceback(error).rstrip())
            return by_model(self._failed(error))

    def _transformed(self, request: ModelRequest, accept: str, context: Context) -> Any:
        content_type = request.header(b"content-type") or None
        data: Any = request.body
        if content_type in TEXT_TYPES:
            try:
                data = data.decode()
            except UnicodeDecodeError as error:
                raise Refusal(400, f"The body is not {content_type} in UTF-8: {error}") from error
        return self._transform(self._model, data, content_type, accept, context)

    def _three_steps(
        self, model: Any, data: Any, content_type: str | None, accept: str, context: Context
    ) -> Any:
        """The default for `transform_fn`."""
        prediction = self._predict(self._input(data, content_type, context), model, context)
        if is_streamed(prediction) and not self._has_output_fn:
            return prediction
        return self._output(prediction, accept, context)

    def close(self) -> None:
        self._model = None


def _user_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    return getattr(module, name, None)


def _check_exclusive(module: ModuleType) -> None:
    steps = ("input_fn", "predict_fn", "output_fn")
    if _user_function(module, "transform_fn") and any(
        _user_function(module, step) for step in steps
    ):
        raise ScriptError(
            "Cannot use transform_fn implementation in conjunction with "
            "input_fn, predict_fn, and/or output_fn implementation"
        )


def _with_arguments(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Adapts a function to `count` arguments and an optional context."""
    try:
        parameter_count = len(inspect.signature(function).parameters)
    except ValueError:  # some C functions have no signature
        parameter_count = count
    if parameter_count == count + 1:
        return function
    name = getattr(function, "__name__", function)

    def without_context(*arguments: Any) -> Any:
        if parameter_count != count:
            raise TypeError(f"{name} takes {parameter_count} arguments but {count} were given.")
        return function(*arguments[:count])

    return without_context


def _is_response(result: Any) -> bool:
    """Whether it is Flask's, or `worker.Response` of sagemaker_containers, which is one too."""
    return all(hasattr(result, name) for name in ("get_data", "mimetype", "status_code"))


def _to_answer(result: Any, accept: str, context: Context) -> ModelAnswer:
    """Accepts a body, whole or streamed, and its type, or a Response."""
    content_type = accept
    if isinstance(result, tuple) and len(result) == 2:
        result, content_type = result
    elif _is_response(result):
        context.set_response_status(result.status_code)
        result, content_type = result.get_data(), result.mimetype
    body, rest = b"", None
    if is_streamed(result):
        # An error before the first piece is an ordinary one.
        pieces = iter_pieces(result)
        if body := next(pieces, b""):
            rest = pieces
    else:
        body = bytes_of(result)
    return ModelAnswer(
        context.status,
        body,
        context.content_type or str(content_type),
        context.answer_headers,
        rest=rest,
    )
