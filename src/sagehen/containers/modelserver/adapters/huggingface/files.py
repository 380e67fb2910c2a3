"""Finds a Hugging Face model's files and its task."""

import json
from pathlib import Path
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.environment import Environment, HuggingFaceSettings

__all__ = ["HuggingFaceError", "find_task", "is_text_task", "model_folder"]

CONFIG = "config.json"
TASKS = {
    "TapasForQuestionAnswering": "table-question-answering",
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "MTModel": "text2text-generation",
    "EncoderDecoderModel": "text2text-generation",
    "GPT2LMHeadModel": "text-generation",
    "T5WithLMHeadModel": "text2text-generation",
}
"""By the ending of the architecture's name."""

TEXT_TASKS = ("feature-extraction", "text-classification", "token-classification")
"""Tasks that answer each text quickly and independently, without sampling."""
_ALIASES = {"sentiment-analysis": "text-classification", "ner": "token-classification"}

_OPT_ML = "/opt/ml/"


class HuggingFaceError(SagehenError):
    """The model is not available, or its task is unknown."""


def model_folder(model_dir: Path, environment: Environment) -> Path:
    """Returns the folder of HF_MODEL_ID, else the model's own.

    Downloads from the Hugging Face Hub, or uses the cache if the Hub is unreachable. Raises
    HuggingFaceError.
    """
    settings = environment.hugging_face
    model_id = settings.model_id
    if not model_id:
        return model_dir
    if model_id.startswith(_OPT_ML):
        model_id = str(environment.base_dir / model_id.removeprefix(_OPT_ML))
    if not model_id.startswith("/"):
        return _from_hub(settings)
    if not Path(model_id).is_dir():
        raise HuggingFaceError(
            f"HF_MODEL_ID is {settings.model_id}, which is not a folder on this machine."
        )
    return Path(model_id)


def _from_hub(settings: HuggingFaceSettings) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = snapshot_download(
            settings.model_id,
            revision=settings.revision or None,
            token=settings.token or None,
        )
    except (OSError, HFValidationError, HfHubHTTPError) as error:
        raise HuggingFaceError(
            f"HF_MODEL_ID is {settings.model_id}, which cannot be fetched from the Hugging Face "
            "Hub and is not in its cache here: put the model's files into model.tar.gz, or name a "
            f"folder of this machine. {_single_line(error)}"
        ) from error
    return Path(folder)


def find_task(folder: Path, settings: HuggingFaceSettings) -> str:
    """Raises HuggingFaceError."""
    if settings.task:
        return settings.task
    architecture = _architecture(folder)
    for ending, task in TASKS.items():
        if architecture.endswith(ending):
            return task
    raise HuggingFaceError(
        f"Task couldn't be inferred from {architecture}: set HF_TASK in the container's "
        f"Environment, as feature-extraction. It can be inferred from architectures ending with "
        f"{', '.join(TASKS)}."
    )


def is_text_task(task: str) -> bool:
    return _ALIASES.get(task, task) in TEXT_TASKS


def _architecture(folder: Path) -> str:
    path = folder / CONFIG
    if not path.is_file():
        raise HuggingFaceError(
            f"The model's archive has no {CONFIG}, as save_pretrained() writes it, and no "
            "code/inference.py with a model_fn; HF_MODEL_ID is not set either."
        )
    try:
        config: Any = json.loads(path.read_text())
        return str((config.get("architectures") or ["no architecture"])[0])
    except (ValueError, AttributeError) as error:
        raise HuggingFaceError(f"The model's {CONFIG} is not a JSON object: {error}") from error


def _single_line(error: Exception) -> str:
    return " ".join(str(error).split())
