"""Parameters of an invocation: read from its target and headers, checked against botocore's service
model, and cached, as clients repeat the same few requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from sagehen.gateway.admission.errors import COMPONENT_NOT_ALLOWED
from sagehen.http1.fields import HeaderNameCache, Headers, field_lines
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate
from sagehen.wire.values import as_meant

__all__ = [
    "INVOKE",
    "INVOKE_STREAM",
    "InvocationParams",
    "Operation",
    "ParameterCheck",
    "ParamsReader",
    "Target",
    "forwarded",
    "make_parameter_check",
    "read_target",
]


@dataclass(frozen=True, kw_only=True)
class Operation:
    name: str
    members: Mapping[str, str]
    """input members by lower-case header name"""
    refused: Mapping[str, str]
    """messages by lower-case name of an unsupported header"""
    begins_sessions: bool
    """the answer can carry a new session's id"""
    for_container: Callable[[Headers], Headers] = lambda headers: headers
    """applied to the forwarded headers"""


def _accept_renamed(headers: Headers) -> Headers:
    """Renames the header meant for the model: in this operation, Accept is the SDK's own."""
    return [
        (b"Accept" if name.lower() == b"x-amzn-sagemaker-accept" else name, value)
        for name, value in headers
        if name.lower() != b"accept"
    ]


INVOKE = Operation(
    name="InvokeEndpoint",
    members={
        "content-type": "ContentType",
        "accept": "Accept",
        "x-amzn-sagemaker-custom-attributes": "CustomAttributes",
        "x-amzn-sagemaker-target-model": "TargetModel",
        "x-amzn-sagemaker-target-variant": "TargetVariant",
        "x-amzn-sagemaker-target-container-hostname": "TargetContainerHostname",
        "x-amzn-sagemaker-inference-id": "InferenceId",
        "x-amzn-sagemaker-enable-explanations": "EnableExplanations",
        "x-amzn-sagemaker-inference-component": "InferenceComponentName",
        "x-amzn-sagemaker-session-id": "SessionId",
        "x-amzn-sagemaker-prefix-aware-id": "PrefixAwareId",
    },
    refused={
        "x-amzn-sagemaker-enable-explanations": (
            "EnableExplanations is not implemented by Sagehen yet. Leave it out."
        ),
        "x-amzn-sagemaker-inference-component": COMPONENT_NOT_ALLOWED,
        "x-amzn-sagemaker-prefix-aware-id": (
            "PrefixAwareId goes with the routing strategy PREFIX_AWARE, which is not implemented "
            "by Sagehen yet. Leave it out; SessionId keeps requests on one instance."
        ),
    },
    begins_sessions=True,
)

_NOT_IN_STREAMS = ("Accept", "TargetModel", "EnableExplanations")

INVOKE_STREAM = Operation(
    name="InvokeEndpointWithResponseStream",
    members={
        "x-amzn-sagemaker-accept": "Accept",
        **{
            header: member
            for header, member in INVOKE.members.items()
            if member not in _NOT_IN_STREAMS
        },
    },
    refused={
        **INVOKE.refused,
        "x-amzn-sagemaker-target-model": (
            "InvokeEndpointWithResponseStream does not take TargetModel. Use InvokeEndpoint, or "
            "an endpoint with one model."
        ),
        "x-amzn-sagemaker-enable-explanations": (
            "InvokeEndpointWithResponseStream does not take EnableExplanations. Leave it out."
        ),
    },
    begins_sessions=False,
    for_container=_accept_renamed,
)


MAX_VALID_VALUES = 10_000
MAX_VALID_VALUE_LENGTH = 256
"""characters; longer values are checked each time"""

Validate = Callable[[dict[str, Any]], None]
"""Raises AwsError for invalid parameters."""


class ParameterCheck:
    """Validates each header value only once.

    `members`: input members by header name.
    """

    def __init__(self, members: Mapping[str, str], validate: Validate) -> None:
        self._members = members
        self._validate = validate
        self._valid: set[tuple[str, str]] = set()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises ValidationError."""
        valid = self._valid
        for header in self._members:
            value = headers.get(header)
            if value is not None and (header, value) not in valid:
                self._check_in_full(header, value)

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError."""
        self._validate_params({"EndpointName": endpoint_name})

    def _check_in_full(self, header: str, value: str) -> None:
        self._validate_params({self._members[header]: as_meant(value)})
        if len(self._valid) >= MAX_VALID_VALUES:
            self._valid.clear()
        if len(value) <= MAX_VALID_VALUE_LENGTH:
            self._valid.add((header, value))

    def _validate_params(self, params: dict[str, Any]) -> None:
        self._validate({"EndpointName": "any", "Body": b"", **params})


def make_parameter_check(operation: Operation) -> ParameterCheck:
    model = service("sagemaker-runtime").operation_model(operation.name)
    return ParameterCheck(operation.members, partial(validate, model))


_FORWARDED = frozenset((b"content-type", b"accept"))
_FORWARDED_PREFIX = b"x-amzn-sagemaker-"


def _is_forwarded(name: bytes) -> bool:
    lower = name.lower()
    return lower in _FORWARDED or lower.startswith(_FORWARDED_PREFIX)


_is_forwarded_by_name = HeaderNameCache(_is_forwarded)


def forwarded(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    return tuple([field for field in headers if _is_forwarded_by_name[field[0]]])


MAX_CACHED_PARAMS = 10_000
MAX_CACHED_HEADERS_BYTES = 512


class InvocationParams(msgspec.Struct, frozen=True):
    header_lines: bytes
    """for the container"""
    target_variant: str | None
    target_model: str | None
    target_container: str | None
    session_id: str | None
    refusal: str | None
    """why no endpoint can take the request"""


class ParamsReader:
    """Reads the parameters of one operation's requests."""

    def __init__(self, operation: Operation, check: ParameterCheck) -> None:
        self.operation = operation
        self._check = check
        self._cache: dict[tuple[tuple[bytes, bytes], ...], InvocationParams] = {}

    def read(self, headers: Headers, fields: Mapping[str, str]) -> InvocationParams:
        """`fields` are the same headers as a mapping. Raises AwsError."""
        key = forwarded(headers)
        params = self._cache.get(key)
        return self._read_in_full(key, fields) if params is None else params

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError."""
        self._check.check_name(endpoint_name)

    def _read_in_full(
        self, key: tuple[tuple[bytes, bytes], ...], fields: Mapping[str, str]
    ) -> InvocationParams:
        self._check.check(fields)
        refused = self.operation.refused
        target_model = fields.get("x-amzn-sagemaker-target-model")
        params = InvocationParams(
            header_lines=field_lines(self.operation.for_container(_joined(key))),
            target_variant=fields.get("x-amzn-sagemaker-target-variant"),
            target_model=None if target_model is None else as_meant(target_model),
            target_container=fields.get("x-amzn-sagemaker-target-container-hostname"),
            session_id=fields.get("x-amzn-sagemaker-session-id"),
            refusal=next((reason for name, reason in refused.items() if name in fields), None),
        )
        if len(self._cache) >= MAX_CACHED_PARAMS:
            self._cache.clear()
        # The key's size, as it includes headers that `header_lines` lacks.
        if sum(len(name) + len(value) for name, value in key) <= MAX_CACHED_HEADERS_BYTES:
            self._cache[key] = params
        return params


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Joins repeated headers by commas, as they were validated and signed: a container would take
    only the first or the last."""
    values: dict[bytes, tuple[bytes, bytes]] = {}
    for name, value in headers:
        first = values.get(name.lower())
        values[name.lower()] = (
            (name, value) if first is None else (first[0], first[1] + b"," + value)
        )
    return list(values.values())


_ENDPOINTS = "/endpoints/"
MAX_CACHED_TARGET_BYTES = 512


class Target(NamedTuple):
    path: str
    """percent-encoded, without the query"""
    query: str
    endpoint: str
    """of `/endpoints/{endpoint}/{action}`, percent-decoded; else empty"""
    action: str


def read_target(target: bytes) -> Target:
    return _read_cached(target) if len(target) <= MAX_CACHED_TARGET_BYTES else _read_target(target)


def _read_target(target: bytes) -> Target:
    path, _, query = target.decode("latin-1").partition("?")
    if not path.startswith(_ENDPOINTS):
        return Target(path, query, "", "")
    name, _, action = path[len(_ENDPOINTS) :].partition("/")
    return Target(path, query, unquote(name), action)


_read_cached = lru_cache(maxsize=4096)(_read_target)
