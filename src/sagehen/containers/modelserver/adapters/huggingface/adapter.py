"""Serves Hugging Face models with transformers or the user's script."""

from pathlib import Path
from typing import Any

from sagehen.containers.modelserver.adapters.huggingface.codecs import asked, decode, encode
from sagehen.containers.modelserver.adapters.huggingface.files import (
    find_task,
    is_of_texts,
    model_folder,
)
from sagehen.containers.modelserver.adapters.huggingface.models import (
    PipelineModel,
    PredictionError,
    TextModel,
)
from sagehen.containers.modelserver.adapters.pytorch.runtime import inference, prepare, require
from sagehen.containers.modelserver.adapters.script.handlers import Handlers
from sagehen.containers.modelserver.adapters.script.script import find_script, load_script
from sagehen.containers.modelserver.contract import BatchModel, CallModel, ModelAnswer
from sagehen.containers.modelserver.environment import Environment

__all__ = ["HuggingFaceAdapter", "adapter"]


def adapter(environment: Environment) -> "HuggingFaceAdapter":
    """Raises Unavailable if transformers or PyTorch is not installed."""
    require("torch", "PyTorch", "huggingface")
    require("transformers", "transformers", "huggingface")
    if environment.multi_model:
        _import_pipelines()  # else the first load would wait
    return HuggingFaceAdapter(environment)


class HuggingFaceAdapter:
    """Loads what `save_pretrained` wrote."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        environment = self._environment
        prepare(environment.threads)
        script = find_script(model_dir, environment)
        if script is not None:
            handlers = Handlers(self._pipeline, decode, _predict, encode, failed=_failed)
            return load_script(script, model_dir, handlers, environment)
        pipeline = self._pipeline(str(model_dir))
        if self._is_of_texts(model_dir):
            together = _import_pipelines().takes_texts_together(pipeline)
            return TextModel(pipeline, environment.default_accept, together)
        return PipelineModel(pipeline, environment.default_accept)

    def needs_worker(self, model_dir: Path) -> bool:
        """Returns True for scripts and slow pipelines. Raises SagehenError."""
        if find_script(model_dir, self._environment) is not None:
            return True
        return not self._is_of_texts(model_dir)

    def _is_of_texts(self, model_dir: Path) -> bool:
        settings = self._environment.hugging_face
        if settings.task:
            return is_of_texts(settings.task)
        return is_of_texts(find_task(model_folder(model_dir, self._environment), settings))

    def _pipeline(self, model_dir: str) -> Any:
        settings = self._environment.hugging_face
        folder = model_folder(Path(model_dir), self._environment)
        task = find_task(folder, settings)
        return _import_pipelines().make_pipeline(task, folder, settings.trust_remote_code)


def _predict(data: Any, model: Any) -> Any:
    inputs, parameters = asked(data)
    with inference():
        return model(inputs, **parameters)


def _failed(problem: Exception) -> ModelAnswer:
    return PredictionError(problem).answer


def _import_pipelines() -> Any:
    """Imports late: transformers takes seconds, and a script may not need it."""
    from sagehen.containers.modelserver.adapters.huggingface import (
        pipelines as huggingface_pipelines,
    )

    return huggingface_pipelines
