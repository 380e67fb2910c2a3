"""Parameters of an invocation: read from its target and headers, checked against botocore's service
model, and cached, as clients repeat the same few requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from sagehen.gateway.admission.errors import COMPONENT_NOT_ALLOWED
from sagehen.gateway.client.exchange import field_lines
from sagehen.gateway.container.connection import Headers
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate
from sagehen.wire.values import as_meant

__all__ = [
    "INVOKE",
    "INVOKE_STREAM",
    "ByName",
    "CallReader",
    "InvocationParams",
    "Operation",
    "ParameterCheck",
    "Target",
    "check_of",
    "container_head",
    "forwarded",
    "joined_fields",
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

_NOT_OF_STREAMS = ("Accept", "TargetModel", "EnableExplanations")

INVOKE_STREAM = Operation(
    name="InvokeEndpointWithResponseStream",
    members={
        "x-amzn-sagemaker-accept": "Accept",
        **{name: one for name, one in INVOKE.members.items() if one not in _NOT_OF_STREAMS},
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


VALUES_REMEMBERED = 10_000
LONGEST_REMEMBERED = 256

Validate = Callable[[dict[str, Any]], None]
"""Raises AwsError for invalid parameters."""


class ParameterCheck:
    """Validates each header value only once.

    `members`: input members by header name.
    """

    def __init__(self, members: Mapping[str, str], validate: Validate) -> None:
        self._members = members
        self._validate = validate
        self._fine: set[tuple[str, str]] = set()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises ValidationError."""
        fine = self._fine
        for header in self._members:
            value = headers.get(header)
            if value is not None and (header, value) not in fine:
                self._check_in_full(header, value)

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError."""
        self._run({"EndpointName": endpoint_name})

    def _check_in_full(self, header: str, value: str) -> None:
        self._run({self._members[header]: as_meant(value)})
        if len(self._fine) >= VALUES_REMEMBERED:
            self._fine.clear()
        if len(value) <= LONGEST_REMEMBERED:
            self._fine.add((header, value))

    def _run(self, params: dict[str, Any]) -> None:
        self._validate({"EndpointName": "any", "Body": b"", **params})


def check_of(operation: Operation) -> ParameterCheck:
    model = service("sagemaker-runtime").operation_model(operation.name)
    return ParameterCheck(operation.members, partial(validate, model))


Value = TypeVar("Value")

_NAMES_REMEMBERED = 1024
_LONGEST_REMEMBERED_FIELD = 128
"""bytes; clients may send names as long as a whole head"""


class ByName(dict[bytes, Value], Generic[Value]):
    """A cache of values computed from a header name as sent."""

    __slots__ = ("_find_out",)

    def __init__(self, find_out: Callable[[bytes], Value]) -> None:
        super().__init__()
        self._find_out = find_out

    def __missing__(self, name: bytes) -> Value:
        if len(self) >= _NAMES_REMEMBERED:
            self.clear()
        value = self._find_out(name)
        if len(name) <= _LONGEST_REMEMBERED_FIELD:
            self[name] = value
        return value


_names = ByName(lambda name: name.decode("latin-1").lower())


def joined_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Returns lower-case names; values of repeated fields are joined by commas."""
    headers = {_names[name]: value.decode("latin-1") for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, raw_value in fields:
            name, value = _names[raw_name], raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


_FORWARDED = frozenset((b"content-type", b"accept"))
_FORWARDED_PREFIX = b"x-amzn-sagemaker-"


def _is_forwarded(name: bytes) -> bool:
    lower = name.lower()
    return lower in _FORWARDED or lower.startswith(_FORWARDED_PREFIX)


_goes = ByName(_is_forwarded)


def forwarded(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    return tuple([field for field in headers if _goes[field[0]]])


def container_head(lines: bytes, model_name: str | None, length: int) -> bytes:
    target = b"/invocations" if model_name is None else b"/models/%b/invoke" % model_name.encode()
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n" % (
        target,
        length,
        lines,
    )


CALLS_REMEMBERED = 10_000
LONGEST_REMEMBERED_BYTES = 512


class InvocationParams(msgspec.Struct, frozen=True):
    lines: bytes
    """for the container"""
    target_variant: str | None
    target_model: str | None
    target_container: str | None
    session_id: str | None
    refusal: str | None
    """why no endpoint can take the request"""


class CallReader:
    """Reads requests of one operation."""

    def __init__(self, operation: Operation, check: ParameterCheck) -> None:
        self.operation = operation
        self._check = check
        self._known: dict[tuple[tuple[bytes, bytes], ...], InvocationParams] = {}

    def read(self, headers: Headers, fields: Mapping[str, str]) -> InvocationParams:
        """`fields` are the same headers as a mapping. Raises AwsError."""
        key = forwarded(headers)
        call = self._known.get(key)
        return self._read_in_full(key, fields) if call is None else call

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError."""
        self._check.check_name(endpoint_name)

    def _read_in_full(
        self, key: tuple[tuple[bytes, bytes], ...], fields: Mapping[str, str]
    ) -> InvocationParams:
        self._check.check(fields)
        refused = self.operation.refused
        target_model = fields.get("x-amzn-sagemaker-target-model")
        call = InvocationParams(
            lines=field_lines(self.operation.for_container(_joined(key))),
            target_variant=fields.get("x-amzn-sagemaker-target-variant"),
            target_model=None if target_model is None else as_meant(target_model),
            target_container=fields.get("x-amzn-sagemaker-target-container-hostname"),
            session_id=fields.get("x-amzn-sagemaker-session-id"),
            refusal=next((why for name, why in refused.items() if name in fields), None),
        )
        if len(self._known) >= CALLS_REMEMBERED:
            self._known.clear()
        # The key's size, as it includes headers that `lines` lacks.
        if sum(len(name) + len(value) for name, value in key) <= LONGEST_REMEMBERED_BYTES:
            self._known[key] = call
        return call


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
_LONGEST_REMEMBERED = 512


class Target(NamedTuple):
    path: str
    """percent-encoded, without the query"""
    query: str
    endpoint: str
    """of `/endpoints/{endpoint}/{action}`, percent-decoded; else empty"""
    action: str


def read_target(target: bytes) -> Target:
    return _known(target) if len(target) <= _LONGEST_REMEMBERED else _read(target)


def _read(target: bytes) -> Target:
    path, _, query = target.decode("latin-1").partition("?")
    if not path.startswith(_ENDPOINTS):
        return Target(path, query, "", "")
    name, _, action = path[len(_ENDPOINTS) :].partition("/")
    return Target(path, query, unquote(name), action)


_known = lru_cache(maxsize=4096)(_read)
