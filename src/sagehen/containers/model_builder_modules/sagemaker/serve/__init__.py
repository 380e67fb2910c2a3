"""The part of `sagemaker.serve` that runs in containers."""

from .builder.schema_builder import SchemaBuilder
from .marshalling.custom_payload_translator import CustomPayloadTranslator
from .spec.inference_spec import InferenceSpec

__all__ = ["CustomPayloadTranslator", "InferenceSpec", "SchemaBuilder"]
