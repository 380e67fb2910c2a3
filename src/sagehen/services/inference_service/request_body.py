"""Parses and checks request bodies."""

import json
import math
from typing import Any

import msgspec

from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.services.inference_service.errors import Malformed, Unsupported

__all__ = ["InlineInput", "JobBody", "read_wanted"]

MOST_PARAMETERS = 100
LONGEST_PARAMETER_NAME = 256
LONGEST_PARAMETER = 2500
"""SageMaker's bounds on HyperParameters, like the two above"""
LONGEST_URI = 1024
RESERVED_PREFIX = "sagemaker_"
"""hyperparameters that choose the code, which is up to the service's owner"""


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


def read_wanted(body: bytes, settings: InferenceServiceSettings) -> JobBody:
    """Ignores unknown keys.

    Raises:
        Malformed: not a JSON object with a `type`, or a value is not allowed.
        Unsupported: the type is not on the white list.
    """
    given = _read_object(body)
    kind = given.get("type")
    if not isinstance(kind, str) or not kind:
        raise Malformed
    options = {name: value for name, value in given.items() if value is not None}
    uri, inline = _input(options.get("input"), settings)
    wanted = JobBody(
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
    _check_own(wanted, settings)
    return wanted


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
        raise ValueError("A key is there twice.")
    return read


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON.")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("A number is too large.")
    return number


def _input(given: Any, settings: InferenceServiceSettings) -> tuple[str | None, InlineInput | None]:
    if given is None:
        return None, None
    if isinstance(given, str) and given.startswith("s3://"):
        return _input_uri(given, settings), None
    if isinstance(given, str):
        return None, InlineInput("input.txt", _encoded(given, "input"), "text/plain; charset=utf-8")
    if isinstance(given, dict | list):
        return None, InlineInput("input.json", _dumped(given), "application/json")
    raise Malformed("input must be an address s3://bucket/key, a text, an object or a list.")


def _dumped(given: Any) -> bytes:
    try:
        return _encoded(json.dumps(given, ensure_ascii=False), "input")
    except RecursionError as error:
        raise Malformed("input is nested too deeply.") from error


def _input_uri(uri: str, settings: InferenceServiceSettings) -> str:
    if len(uri) > LONGEST_URI:
        raise Malformed(f"input has more than {LONGEST_URI} characters.")
    _encoded(uri, "input")
    allowed = settings.allowed_inputs or (f"s3://{settings.s3_bucket}/",)
    if not any(uri.startswith(prefix) for prefix in allowed):
        raise Malformed(f"input must begin with {' or '.join(allowed)}.")
    return uri


def _parameters(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise Malformed("parameters must be an object.")
    if len(given) > MOST_PARAMETERS:
        raise Malformed(f"parameters may have {MOST_PARAMETERS} entries at most.")
    return {_parameter_name(name): _parameter(name, value) for name, value in given.items()}


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
    given = options.get("instance_type", settings.instance_type)
    allowed = (settings.instance_type, *settings.allowed_instance_types)
    if given not in allowed:
        raise Malformed(f"instance_type must be one of {', '.join(dict.fromkeys(allowed))}.")
    return str(given)


def _instance_count(options: dict[str, Any], settings: InferenceServiceSettings) -> int:
    given = options.get("instance_count", settings.instance_count)
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if not is_number or not 1 <= given <= settings.max_instance_count:
        raise Malformed(f"instance_count must be from 1 to {settings.max_instance_count}.")
    return int(given)


def _spot(options: dict[str, Any], settings: InferenceServiceSettings) -> bool:
    given = options.get("spot", settings.spot)
    if not isinstance(given, bool):
        raise Malformed("spot must be true or false.")
    return given


def _check_own(wanted: JobBody, settings: InferenceServiceSettings) -> None:
    """Rejects parameters that the owner fixed for the type."""
    if (own := settings.types.get(wanted.type)) is None:
        return
    if taken := sorted(own.hyperparameters.keys() & wanted.parameters.keys()):
        raise Malformed(f"parameters may not have {', '.join(taken)}, which the type itself sets.")
    if len(own.hyperparameters) + len(wanted.parameters) > MOST_PARAMETERS:
        room = MOST_PARAMETERS - len(own.hyperparameters)
        raise Malformed(f"parameters may have {room} entries at most.")


def _encoded(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"{where} has half of a surrogate pair, which is no character.") from error
