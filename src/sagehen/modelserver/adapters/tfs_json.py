"""The bodies that SageMaker's TensorFlow Serving container takes, as TensorFlow Serving's JSON."""

import base64
import csv
import io
import json
from typing import Any

from sagehen.modelserver.adapters.codecs import CSV, JSON, UnsupportedFormat
from sagehen.modelserver.adapters.json_text import json_text

__all__ = ["JSON_LINES", "request_content", "text_of"]

JSON_LINES, JSONS = "application/jsonlines", "application/jsons"
KEYS = frozenset(("instances", "inputs", "examples"))


def request_content(body: bytes, content_type: str) -> dict[str, Any]:
    """An object with `instances`, `inputs` or `examples`.

    Raises:
        UnsupportedFormat: another content type.
        ValueError: the body is not in its form.
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
    """One JSON value, or several with nothing but white space between them."""
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
    """A list a line, or the one value of a line that has one; text where a line begins with it."""
    first = text.lstrip()[:1]
    if not first:
        raise ValueError("the body is empty")
    numbers = first in '".+-' or first.isdigit()
    file = io.StringIO(text.strip())
    try:
        if numbers:  # what is not quoted
            lines = csv.reader(file, quoting=csv.QUOTE_NONNUMERIC, skipinitialspace=True)
        else:
            lines = csv.reader(file, skipinitialspace=True)
        return [line[0] if len(line) == 1 else line for line in lines if line]
    except csv.Error as problem:
        raise ValueError(str(problem)) from problem


def text_of(content: Any) -> str:
    """As JSON; bytes that are no UTF-8 text become `{"b64": …}`."""
    return json_text(content, _from_bytes)


def _from_bytes(value: Any) -> Any:
    if not isinstance(value, bytes):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
