"""The base class of user classes that load and call a model."""

from abc import ABC, abstractmethod
from typing import Any


class InferenceSpec(ABC):
    @abstractmethod
    def load(self, model_dir: str) -> Any: ...

    @abstractmethod
    def invoke(self, input_object: object, model: object) -> Any: ...

    def preprocess(self, input_data: object) -> Any:
        return input_data

    def postprocess(self, predictions: object) -> Any:
        return predictions

    def prepare(self, *args: Any, **kwargs: Any) -> Any:  # noqa: B027
        """Runs at the client only."""

    def get_model(self) -> Any:  # noqa: B027
        """Is called at the client only."""
