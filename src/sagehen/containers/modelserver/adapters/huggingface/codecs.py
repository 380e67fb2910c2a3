"""Codecs of SageMaker's Hugging Face container."""

import base64
import csv
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from sagehen.containers.modelserver.adapters.shared.codecs import (
    CSV,
    JSON,
    NPY,
    UnsupportedFormat,
    media_type,
)
from sagehen.containers.modelserver.adapters.shared.codecs import decode as decode_array

__all__ = ["PipelineInputs", "decode", "encode", "split_parameters"]

IMAGES = ("jpeg", "png", "tiff", "bmp", "gif", "webp", "x-image")
AUDIO = ("x-flac", "mpeg", "wave", "ogg", "x-audio")
CSV_COLUMNS = ("question", "context", "inputs")
SPEED_PARAMETERS = ("batch_size", "num_workers")
"""Parameters that change no answer; the server sets them itself."""


class PipelineInputs(NamedTuple):
    """The arguments of a pipeline's call."""

    inputs: Any
    parameters: dict[str, Any]


def split_parameters(data: Any) -> PipelineInputs:
    """Splits a request into inputs and parameters; without `inputs`, all of it is the input.

    Raises ValueError.
    """
    if not isinstance(data, dict):
        return PipelineInputs(data, {})
    rest = dict(data)
    parameters = rest.pop("parameters", None) or {}
    if not isinstance(parameters, dict):
        raise ValueError("parameters must be an object")
    parameters = {name: value for name, value in parameters.items() if name not in SPEED_PARAMETERS}
    return PipelineInputs(rest.get("inputs", rest), parameters)


def decode(data: Any, content_type: str) -> Any:
    """Returns an object with `inputs`.

    Raises UnsupportedFormat, or ValueError and the like for malformed data.
    """
    kind = media_type(content_type or "")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise UnsupportedFormat(content_type)
    if not data:
        raise ValueError("The body is empty.")
    return decoder(data)


def _from_json(data: Any) -> Any:
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError('The body must be a JSON object, as {"inputs": "…", "parameters": {…}}.')
    return content


def _from_csv(data: Any) -> Any:
    text = data if isinstance(data, str) else data.decode()
    header = text.partition("\n")[0].lower()
    if not any(column in header for column in CSV_COLUMNS):
        raise ValueError(
            "You need to provide the correct CSV with Header columns to use it with the inference "
            "toolkit default handler."
        )
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows:
        raise ValueError("The CSV has a header and no rows.")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise ValueError(
                f"Row {number} and the header have different numbers of fields: quote texts "
                "that contain a comma."
            )
    return {"inputs": [row["inputs"] for row in rows] if "inputs" in rows[0] else rows}


def _from_image(data: bytes) -> Any:
    from PIL import Image

    return {"inputs": Image.open(io.BytesIO(data)).convert("RGB")}


def _from_audio(data: bytes) -> Any:
    return {"inputs": bytes(data)}


def _from_npy(data: bytes) -> Any:
    return decode_array(data, NPY)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    JSON: _from_json,
    CSV: _from_csv,
    NPY: _from_npy,
    **{f"image/{form}": _from_image for form in IMAGES},
    **{f"audio/{form}": _from_audio for form in AUDIO},
}


def encode(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Uses the first accepted type that has an encoder.

    Raises UnsupportedFormat, or ValueError and the like.
    """
    for content_type in accept.replace(" ", "").split(","):
        kind = media_type(content_type)
        if kind in (JSON, "*/*"):
            return _to_json(prediction), JSON
        if kind == CSV:
            return _to_csv(prediction), CSV
        if kind == NPY:
            return _to_npy(prediction), NPY
        if kind.removeprefix("image/") in IMAGES and hasattr(prediction, "save"):
            return _to_image(prediction, kind), kind
    raise UnsupportedFormat(accept, of_answer=True)


def _to_json(prediction: Any) -> bytes:
    try:
        body = msgspec.json.encode(prediction, enc_hook=_plain)
    except TypeError:  # such as non-string keys
        return _to_strict_json(prediction)
    # The fast encoder writes null for NaN, which must be rejected.
    return _to_strict_json(prediction) if b"null" in body else body


def _to_strict_json(prediction: Any) -> bytes:
    text = json.dumps(
        prediction, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )
    return text.encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "save"):  # an image
        return base64.b64encode(_to_image(value, "image/png")).decode()
    return str(value)


def _to_csv(prediction: Any) -> bytes:
    rows = prediction if isinstance(prediction, list) else [prediction]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("Only a list of objects can be written as text/csv.")
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _to_npy(prediction: Any) -> bytes:
    import numpy

    content = io.BytesIO()
    numpy.save(content, numpy.asarray(prediction), allow_pickle=False)
    return content.getvalue()


def _to_image(image: Any, kind: str) -> bytes:
    content = io.BytesIO()
    form = "PNG" if kind == "image/x-image" else kind.removeprefix("image/").upper()
    image.save(content, format=form)
    return content.getvalue()
