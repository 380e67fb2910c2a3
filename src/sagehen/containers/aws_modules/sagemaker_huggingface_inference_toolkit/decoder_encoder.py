"""Bodies to pipelines' inputs, and predictions to bodies."""

from typing import Any

from sagehen.containers.modelserver.adapters.huggingface import codecs


def decode(content: Any, content_type: str = "application/json") -> Any:
    return codecs.decode(content, content_type)


def encode(content: Any, accept: str = "application/json") -> bytes:
    body, _ = codecs.encode(content, accept)
    return body


def decode_json(content: Any) -> Any:
    return codecs.decode(content, "application/json")


def decode_csv(content: Any) -> Any:
    return codecs.decode(content, "text/csv")


def encode_json(content: Any) -> bytes:
    return encode(content, "application/json")


def encode_csv(content: Any) -> bytes:
    return encode(content, "text/csv")
