"""Serves Hugging Face models with transformers or the user's script."""

from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.huggingface.codecs import (
    decode,
    encode,
    split_parameters,
)
from sagehen.containers.modelserver.adapters.huggingface.files import (
    find_task,
    is_text_task,
    model_folder,
)
from sagehen.containers.modelserver.adapters.huggingface.models import (
    PipelineModel,
    PredictionError,
    TextModel,
)
from sagehen.containers.modelserver.adapters.pytorch.runtime import inference, prepare
from sagehen.containers.modelserver.adapters.script.handlers import Handlers
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.contract import BatchModel, CallModel, ModelAnswer
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.gpus import use_gpu

__all__ = ["HuggingFaceAdapter", "adapter"]


def adapter(environment: Environment) -> "HuggingFaceAdapter":
    """Raises Unavailable if transformers or PyTorch is not installed."""
    require_library("torch", "PyTorch", "huggingface")
    require_library("transformers", "transformers", "huggingface")
    if environment.multi_model:
        _import_pipelines()  # else the first load would wait
    return HuggingFaceAdapter(environment)


class HuggingFaceAdapter(ScriptAdapter):
    """Loads what `save_pretrained` wrote."""

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        prepare(self._environment.threads)
        return super().load(model_dir)

    def needs_worker(self, model_dir: Path) -> bool:
        """Returns True for scripts and slow pipelines. Raises SagehenError."""
        return super().needs_worker(model_dir) or not self._is_text_model(model_dir)

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(
            self._pipeline, decode, _predict, encode, failed=_failure_answer, refuses_bodies=False
        )

    def _load_model(self, model_dir: Path) -> BatchModel | CallModel:
        settings = self._environment
        workers = settings.workers if self.needs_worker(model_dir) else 1
        use_gpu(settings.gpu, settings.gpu_fraction, workers)
        pipeline = self._pipeline(str(model_dir))
        default_accept = self._environment.default_accept
        if self._is_text_model(model_dir):
            batches_texts = _import_pipelines().can_batch_texts(pipeline)
            return TextModel(pipeline, default_accept, batches_texts)
        return PipelineModel(pipeline, default_accept)

    def _is_text_model(self, model_dir: Path) -> bool:
        settings = self._environment.hugging_face
        if settings.task:
            return is_text_task(settings.task)
        return is_text_task(find_task(model_folder(model_dir, self._environment), settings))

    def _pipeline(self, model_dir: str) -> Any:
        settings = self._environment.hugging_face
        folder = model_folder(Path(model_dir), self._environment)
        task = find_task(folder, settings)
        return _import_pipelines().make_pipeline(task, folder, settings.trust_remote_code)


def _predict(data: Any, model: Any) -> Any:
    inputs, parameters = split_parameters(data)
    with inference():
        return model(inputs, **parameters)


def _failure_answer(error: Exception) -> ModelAnswer:
    return PredictionError(error).answer


def _import_pipelines() -> Any:
    """Imports late: transformers takes seconds, and a script may not need it."""
    from sagehen.containers.modelserver.adapters.huggingface import (
        pipelines as huggingface_pipelines,
    )

    return huggingface_pipelines
