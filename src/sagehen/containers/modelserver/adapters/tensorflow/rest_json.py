"""Converts request bodies to TensorFlow Serving's JSON, with classify and regress."""

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sagehen.containers.modelserver.adapters.shared.codecs import (
    CSV,
    JSON,
    UnsupportedFormat,
    json_text,
)
from sagehen.containers.modelserver.adapters.shared.named_tensors import (
    LISTS,
    NamedRows,
    Tensor,
)

__all__ = ["JSON_LINES", "method_results", "read_examples", "request_content", "to_json"]

JSON_LINES, JSONS = "application/jsonlines", "application/jsons"
KEYS = frozenset(("instances", "inputs", "examples"))


def request_content(body: bytes, content_type: str) -> dict[str, Any]:
    """Returns `instances`, `inputs` or `examples`.

    Raises UnsupportedFormat or ValueError.
    """
    if content_type == CSV:
        return {"instances": _csv_rows(body.decode())}
    if content_type not in (JSON, JSON_LINES, JSONS):
        raise UnsupportedFormat(content_type)
    values = _values(body.decode())
    if len(values) > 1:
        return {"instances": values}
    (value,) = values
    if isinstance(value, dict) and value.keys() & KEYS:
        return value
    rows = isinstance(value, list) and value and isinstance(value[0], list | dict)
    return {"instances": value if rows else [value]}


def _values(text: str) -> list[Any]:
    """Reads JSON values separated by white space."""
    decoder, values, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        values.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    if not values:
        raise ValueError("the body is empty")
    return values


def _csv_rows(text: str) -> list[Any]:
    """Returns a list per line, or its only value. If the body begins with text, unquoted numbers
    are text too.
    """
    first = text.lstrip()[:1]
    if not first:
        raise ValueError("the body is empty")
    numbers = first in '".+-' or first.isdigit()
    file = io.StringIO(text.strip())
    try:
        if numbers:  # unquoted values
            lines = csv.reader(file, quoting=csv.QUOTE_NONNUMERIC, skipinitialspace=True)
        else:
            lines = csv.reader(file, skipinitialspace=True)
        return [line[0] if len(line) == 1 else line for line in lines if line]
    except csv.Error as error:
        raise ValueError(str(error)) from error


def to_json(content: Any) -> str:
    """Writes JSON; bytes that are not UTF-8 become `{"b64": …}`."""
    return json_text(content, _from_bytes)


def _from_bytes(value: Any) -> Any:
    if not isinstance(value, bytes):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def read_examples(content: Mapping[str, Any], inputs: Sequence[Tensor]) -> NamedRows:
    """Serializes each of `examples`, with `context` merged in, as tf.Example. Raises ValueError."""
    import numpy

    if len(inputs) != 1 or inputs[0].dtype != object:
        raise ValueError("the signature takes no examples: ask with tfs-method=predict")
    examples, context = content.get("examples"), content.get("context") or {}
    if not isinstance(examples, list) or not examples:
        raise ValueError("Missing 'examples' key")
    if not all(isinstance(part, dict) for part in [*examples, context]):
        raise ValueError("each example must be an object of features")
    serialized = [_serialized({**context, **example}) for example in examples]
    return NamedRows(len(examples), {inputs[0].name: numpy.array(serialized, object)}, LISTS)


def _serialized(features: Mapping[str, Any]) -> bytes:
    from tensorflow import train

    message_features = {name: _feature(name, value, train) for name, value in features.items()}
    data: bytes = train.Example(
        features=train.Features(feature=message_features)
    ).SerializeToString()
    return data


def _feature(name: str, value: Any, train: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if all(isinstance(item, int) for item in values):
        return train.Feature(int64_list=train.Int64List(value=values))
    if all(isinstance(item, int | float) for item in values):
        return train.Feature(float_list=train.FloatList(value=values))
    if all(isinstance(item, str) or _is_bytes(item) for item in values):
        data = [
            item.encode() if isinstance(item, str) else base64.b64decode(item["b64"])
            for item in values
        ]
        return train.Feature(bytes_list=train.BytesList(value=data))
    raise ValueError(f"feature {name!r} must be numbers or text, or a list of either")


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def method_results(outputs: Mapping[str, Any], method: str) -> list[Any]:
    """Returns (label, score) pairs for classify, numbers for regress. Raises ValueError."""
    if method == "regress":
        values: list[Any] = next(iter(outputs.values())).reshape(-1).tolist()
        return values
    labels, scores = outputs.get("classes"), outputs.get("scores")
    if scores is None:
        raise ValueError("the signature's outputs are not those of a classifier")
    if labels is None:
        return [[["", score] for score in row] for row in scores.tolist()]
    return [
        [[label, score] for label, score in zip(*pair, strict=True)]
        for pair in zip(labels.tolist(), scores.tolist(), strict=True)
    ]
