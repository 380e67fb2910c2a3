"""What the headers of an invocation ask for, held against the service model."""

from collections.abc import Mapping, Sequence

import msgspec

from sagehen.gateway.answers import field_lines
from sagehen.gateway.container_request import forwarded
from sagehen.gateway.operations import Operation
from sagehen.gateway.parameters import ParameterCheck
from sagehen.gateway.upstream import Headers
from sagehen.wire.values import as_meant

__all__ = ["Call", "CallReader"]

CALLS_REMEMBERED = 10_000
LONGEST_REMEMBERED_BYTES = 512


class Call(msgspec.Struct, frozen=True):
    """One invocation's parameters, but for its body."""

    lines: bytes
    """The header lines that the container gets."""
    target_variant: str | None
    target_model: str | None
    target_container: str | None
    session_id: str | None
    refusal: str | None
    """Why an endpoint that exists does not take it."""


class CallReader:
    """Reads the calls of one operation; each in full once, as clients send the same over and over.

    `check` holds parameters against the service model.
    """

    def __init__(self, operation: Operation, check: ParameterCheck) -> None:
        self.operation = operation
        self._check = check
        self._known: dict[tuple[tuple[bytes, bytes], ...], Call] = {}

    def read(self, headers: Headers, fields: Mapping[str, str]) -> Call:
        """`fields` are the same headers as a mapping. Raises AwsError for a value out of bounds."""
        key = forwarded(headers)
        call = self._known.get(key)
        return self._read_in_full(key, fields) if call is None else call

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError for what cannot be an endpoint's name."""
        self._check.check_name(endpoint_name)

    def _read_in_full(
        self, key: tuple[tuple[bytes, bytes], ...], fields: Mapping[str, str]
    ) -> Call:
        self._check.check(fields)
        refused = self.operation.refused
        target_model = fields.get("x-amzn-sagemaker-target-model")
        call = Call(
            lines=field_lines(self.operation.for_container(_joined(key))),
            target_variant=fields.get("x-amzn-sagemaker-target-variant"),
            target_model=None if target_model is None else as_meant(target_model),
            target_container=fields.get("x-amzn-sagemaker-target-container-hostname"),
            session_id=fields.get("x-amzn-sagemaker-session-id"),
            refusal=next((why for name, why in refused.items() if name in fields), None),
        )
        if len(self._known) >= CALLS_REMEMBERED:
            self._known.clear()
        # Not by its lines: what a container does not get is a part of the key all the same.
        if sum(len(name) + len(value) for name, value in key) <= LONGEST_REMEMBERED_BYTES:
            self._known[key] = call
        return call


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Each header once, its values joined by commas: as they were checked, and are signed. Of two
    a container would take the first or the last."""
    values: dict[bytes, tuple[bytes, bytes]] = {}
    for name, value in headers:
        first = values.get(name.lower())
        values[name.lower()] = (
            (name, value) if first is None else (first[0], first[1] + b"," + value)
        )
    return list(values.values())
