"""The base class of handlers: a script's class may call its defaults."""

from typing import Any

from . import content_types, decoder, encoder, utils


class DefaultInferenceHandler:
    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        raise NotImplementedError(
            "Please provide a model_fn implementation. See documentation for model_fn at "
            "https://sagemaker.readthedocs.io/en/stable/"
        )

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        return decoder.decode(input_data, content_type)

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        raise NotImplementedError("Please provide a predict_fn implementation.")

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        for content_type in utils.parse_accept(accept) or [content_types.JSON]:
            if content_type in encoder.SUPPORTED_CONTENT_TYPES:
                return encoder.encode(prediction, content_type), content_type
        return encoder.encode(prediction, accept), accept
