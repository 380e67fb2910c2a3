"""Parses and checks request bodies."""

import json
import math
from typing import Any

import msgspec

from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.services.inference_service.errors import Malformed, Unsupported

__all__ = ["InlineInput", "JobBody", "read_body"]

MAX_PARAMETERS = 100
LONGEST_PARAMETER_NAME = 256
LONGEST_PARAMETER = 2500
"""SageMaker's bounds on HyperParameters, like the two above"""
LONGEST_URI = 1024
RESERVED_PREFIX = "sagemaker_"
"""hyperparameters that choose the code; only the service's owner may set them"""


class InlineInput(msgspec.Struct, frozen=True):
    """An input sent in the request."""

    file_name: str
    data: bytes
    content_type: str


class JobBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request, completed from the settings."""

    type: str
    input_uri: str | None = None
    inline: InlineInput | None = None
    parameters: dict[str, str] = {}
    instance_type: str
    instance_count: int
    spot: bool


def read_body(body: bytes, settings: InferenceServiceSettings) -> JobBody:
    """Ignores unknown keys.

    Raises:
        Malformed: not a JSON object with a `type`, or a value is not allowed.
        Unsupported: the type is not on the white list.
    """
    content = _read_object(body)
    kind = content.get("type")
    if not isinstance(kind, str) or not kind:
        raise Malformed
    options = {name: value for name, value in content.items() if value is not None}
    uri, inline = _input(options.get("input"), settings)
    job = JobBody(
        type=kind,
        input_uri=uri,
        inline=inline,
        parameters=_parameters(options.get("parameters", {})),
        instance_type=_instance_type(options, settings),
        instance_count=_instance_count(options, settings),
        spot=_spot(options, settings),
    )
    if kind not in settings.white_list:
        raise Unsupported(kind)
    _check_own(job, settings)
    return job


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(
            body.decode(),
            object_pairs_hook=_without_doubles,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise Malformed from error
    if not isinstance(read, dict):
        raise Malformed
    return read


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        # A proxy may have checked the other value.
        raise ValueError("A key comes more than once.")
    return read


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("A number is too large.")
    return number


def _input(value: Any, settings: InferenceServiceSettings) -> tuple[str | None, InlineInput | None]:
    if value is None:
        return None, None
    if isinstance(value, str) and value.startswith("s3://"):
        return _input_uri(value, settings), None
    if isinstance(value, str):
        return None, InlineInput("input.txt", _encoded(value, "input"), "text/plain; charset=utf-8")
    if isinstance(value, dict | list):
        return None, InlineInput("input.json", _dumped(value), "application/json")
    raise Malformed("input must be an address s3://bucket/key, a text, an object or a list.")


def _dumped(value: Any) -> bytes:
    try:
        return _encoded(json.dumps(value, ensure_ascii=False), "input")
    except RecursionError as error:
        raise Malformed("input is nested too deeply.") from error


def _input_uri(uri: str, settings: InferenceServiceSettings) -> str:
    if len(uri) > LONGEST_URI:
        raise Malformed(
            f"input has {len(uri)} characters; at most {LONGEST_URI} characters are allowed."
        )
    _encoded(uri, "input")
    allowed = settings.allowed_inputs or (f"s3://{settings.s3_bucket}/",)
    if not any(uri.startswith(prefix) for prefix in allowed):
        raise Malformed(f"input must begin with {' or '.join(allowed)}.")
    return uri


def _parameters(parameters: Any) -> dict[str, str]:
    if not isinstance(parameters, dict):
        raise Malformed("parameters must be an object.")
    if len(parameters) > MAX_PARAMETERS:
        raise Malformed(
            f"parameters has {len(parameters)} entries; "
            f"at most {MAX_PARAMETERS} entries are allowed."
        )
    return {_parameter_name(name): _parameter(name, value) for name, value in parameters.items()}


def _parameter_name(name: str) -> str:
    if not 0 < len(name) <= LONGEST_PARAMETER_NAME or not name.isprintable():
        raise Malformed(
            f"A name in parameters must have 1 to {LONGEST_PARAMETER_NAME} printable characters."
        )
    if name.startswith(RESERVED_PREFIX):
        raise Malformed(f"parameters may have no name that begins with {RESERVED_PREFIX}.")
    return name


def _parameter(name: str, value: Any) -> str:
    """Hyperparameters are strings; other values become JSON."""
    if not isinstance(value, str | int | float | bool):
        raise Malformed(f"parameters.{name} must be a text, a number, true or false.")
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > LONGEST_PARAMETER or "\0" in text or "\n" in text:
        raise Malformed(
            f"parameters.{name} must have {LONGEST_PARAMETER} characters at most, in one line."
        )
    _encoded(text, f"parameters.{name}")
    return text


def _instance_type(options: dict[str, Any], settings: InferenceServiceSettings) -> str:
    instance_type = options.get("instance_type", settings.instance_type)
    allowed = (settings.instance_type, *settings.allowed_instance_types)
    if instance_type not in allowed:
        raise Malformed(f"instance_type must be one of {', '.join(dict.fromkeys(allowed))}.")
    return str(instance_type)


def _instance_count(options: dict[str, Any], settings: InferenceServiceSettings) -> int:
    count = options.get("instance_count", settings.instance_count)
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if not is_number or not 1 <= count <= settings.max_instance_count:
        raise Malformed(f"instance_count must be from 1 to {settings.max_instance_count}.")
    return int(count)


def _spot(options: dict[str, Any], settings: InferenceServiceSettings) -> bool:
    spot = options.get("spot", settings.spot)
    if not isinstance(spot, bool):
        raise Malformed("spot must be true or false.")
    return spot


def _check_own(job: JobBody, settings: InferenceServiceSettings) -> None:
    """Rejects parameters that the owner fixed for the type."""
    if (own := settings.types.get(job.type)) is None:
        return
    if taken := sorted(own.hyperparameters.keys() & job.parameters.keys()):
        raise Malformed(f"parameters may not have {', '.join(taken)}, which the type itself sets.")
    if len(own.hyperparameters) + len(job.parameters) > MAX_PARAMETERS:
        allowed = MAX_PARAMETERS - len(own.hyperparameters)
        raise Malformed(f"parameters may have {allowed} entries at most.")


def _encoded(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(
            f"{where} has half of a surrogate pair, which is not a character."
        ) from error
