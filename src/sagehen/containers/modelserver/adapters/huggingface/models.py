"""Loaded Hugging Face models: texts are batched, other inputs are not."""

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sagehen.containers.modelserver.adapters.huggingface.codecs import (
    PipelineInputs,
    decode,
    encode,
    split_parameters,
)
from sagehen.containers.modelserver.adapters.pytorch.runtime import inference
from sagehen.containers.modelserver.adapters.shared.codecs import JSON, accepted_type
from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest, Refusal
from sagehen.containers.modelserver.serving.responses import error

__all__ = ["PipelineModel", "PredictionError", "TextModel"]

FORWARD_TEXTS = 32
"""Texts per call: more gain little, and wait for the longest text."""

log = logging.getLogger(__name__)


class PredictionError(Refusal):
    """Answers 400 for any error, as in SageMaker's container."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(400, str(problem) or type(problem).__name__)

    @property
    def answer(self) -> ModelAnswer:
        return error(self.status, "InternalServerException", str(self))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (Refusal, MemoryError):
        raise
    except Exception as problem:
        log.warning("A request failed.", exc_info=problem)
        raise PredictionError(problem) from problem


class _Codec:
    def __init__(self, default_accept: str) -> None:
        self._default_accept = default_accept or JSON

    def arguments(self, body: bytes, content_type: str) -> PipelineInputs:
        with _errors():
            return split_parameters(decode(body, content_type))

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        accept = accepted_type(accept, self._default_accept)
        with _errors():
            return ModelAnswer(200, *encode(prediction, accept))


class PipelineModel:
    """A pipeline that answers one request per call."""

    def __init__(self, pipeline: Any, default_accept: str) -> None:
        self._pipeline = pipeline
        self._codec = _Codec(default_accept)
        self._turn = threading.Lock()  # tokenizers are not thread-safe

    def call(self, request: ModelRequest) -> ModelAnswer:
        arguments = self._codec.arguments(request.body, request.header(b"content-type"))
        with self._turn, _errors(), inference():
            prediction = self._pipeline(arguments.inputs, **arguments.parameters)
        return self._codec.encode(prediction, request.header(b"accept"))

    def close(self) -> None:
        self._pipeline = None


@dataclass(slots=True)
class _Texts:
    """`texts` is None for inputs that are not plain texts."""

    count: int
    arguments: PipelineInputs
    texts: list[str] | None
    key: str
    """Equal for equal parameters."""


class TextModel:
    """A pipeline that batches texts if `together`."""

    def __init__(self, pipeline: Any, default_accept: str, batches_texts: bool) -> None:
        self._pipeline = pipeline
        self._batches_texts = batches_texts
        self._codec = _Codec(default_accept)

    def decode(self, body: bytes, content_type: str) -> _Texts:
        arguments = self._codec.arguments(body, content_type)
        texts = _plain_texts(arguments.inputs) if self._batches_texts else None
        key = json.dumps(arguments.parameters, sort_keys=True)
        return _Texts(len(texts) if texts else 1, arguments, texts, key)

    def predict(self, batch: Sequence[_Texts]) -> list[Any]:
        groups: dict[str, list[_Texts]] = {}
        for member in batch:
            if member.texts:
                groups.setdefault(member.key, []).append(member)
        with _errors(), inference():
            answers = {
                key: iter(self._predict_together(members)) for key, members in groups.items()
            }
            return [
                next(answers[member.key]) if member.texts else self._predict_alone(member)
                for member in batch
            ]

    def _predict_together(self, members: list[_Texts]) -> list[Any]:
        texts = [text for member in members for text in member.texts or ()]
        # Shorter texts are padded to the longest of a call.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        ordered: list[Any] = [None] * len(texts)
        answers = self._pipeline(
            [texts[at] for at in order], batch_size=FORWARD_TEXTS, **members[0].arguments.parameters
        )
        for at, answer in zip(order, answers, strict=True):
            ordered[at] = answer
        remaining = iter(ordered)
        return [
            self._shaped(member, [next(remaining) for _ in range(member.count)])
            for member in members
        ]

    def _shaped(self, member: _Texts, answers: list[Any]) -> Any:
        """Shapes answers as for these inputs alone."""
        if isinstance(member.arguments.inputs, list):
            return answers
        classifies = self._pipeline.task == "text-classification"
        return answers if classifies and "top_k" not in member.arguments.parameters else answers[0]

    def _predict_alone(self, member: _Texts) -> Any:
        return self._pipeline(member.arguments.inputs, **member.arguments.parameters)

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        return self._codec.encode(prediction, accept)

    def close(self) -> None:
        self._pipeline = None


def _plain_texts(inputs: Any) -> list[str] | None:
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, list) and inputs and all(isinstance(text, str) for text in inputs):
        return inputs
    return None
