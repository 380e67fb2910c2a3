"""Makes transformers pipelines and tells which can batch texts."""

from pathlib import Path
from typing import Any

import torch
from transformers import pipeline
from transformers.pipelines import check_task
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline
from transformers.utils import logging

from sagehen.containers.modelserver.adapters.huggingface.files import HuggingFaceError
from sagehen.containers.modelserver.adapters.pytorch.runtime import device

__all__ = ["FeatureExtraction", "can_batch_texts", "make_pipeline"]


class FeatureExtraction(FeatureExtractionPipeline):  # type: ignore[misc]
    """Drops the features of padding, so that batching does not change answers."""

    def preprocess(self, inputs: Any, **tokenize_kwargs: Any) -> Any:
        encoded = super().preprocess(inputs, **tokenize_kwargs)
        encoded["tokens"] = torch.tensor([[encoded["input_ids"].shape[1]]])
        return encoded

    def _forward(self, model_inputs: Any) -> Any:
        tokens = model_inputs.pop("tokens")
        return {"features": super()._forward(model_inputs)[0], "tokens": tokens}

    def postprocess(self, model_outputs: Any, return_tensors: bool = False) -> Any:
        features = model_outputs["features"][:, : int(model_outputs["tokens"][0, 0])]
        return super().postprocess((features,), return_tensors)


def make_pipeline(task: str, folder: Path, trust_remote_code: bool) -> Any:
    """Raises HuggingFaceError for an unknown task, and what transformers raises."""
    logging.disable_progress_bar()
    try:
        name = check_task(task)[0]
    except KeyError as error:
        raise HuggingFaceError(
            f"{error.args[0]}. Set HF_TASK to one of them, or bring a code/inference.py with a "
            "model_fn; tasks that transformers 5 has dropped are in transformers below 5."
        ) from error
    options = {"pipeline_class": FeatureExtraction} if name == "feature-extraction" else {}
    return pipeline(
        task, model=str(folder), device=device(), trust_remote_code=trust_remote_code, **options
    )


def can_batch_texts(made_pipeline: Any) -> bool:
    """Whether padding leaves the answers unchanged."""
    tokenizer = made_pipeline.tokenizer
    return (
        tokenizer is not None
        and tokenizer.pad_token_id is not None
        and tokenizer.padding_side == "right"
        and "attention_mask" in tokenizer.model_input_names
        and getattr(made_pipeline.model.config, "pad_token_id", None) is not None
    )
