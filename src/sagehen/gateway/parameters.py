"""An invocation's parameters: read from the headers, held against the service model's limits."""

from collections.abc import Callable, Mapping
from typing import Any

from sagehen.wire.values import as_meant

__all__ = ["HEADER_MEMBERS", "STREAM_HEADER_MEMBERS", "ParameterCheck"]

HEADER_MEMBERS = {
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
}
"""InvokeEndpoint's."""

_NOT_OF_STREAMS = ("Accept", "TargetModel", "EnableExplanations")
STREAM_HEADER_MEMBERS = {
    "x-amzn-sagemaker-accept": "Accept",
    **{name: member for name, member in HEADER_MEMBERS.items() if member not in _NOT_OF_STREAMS},
}
"""InvokeEndpointWithResponseStream's."""

VALUES_REMEMBERED = 10_000
LONGEST_REMEMBERED = 256

Validate = Callable[[dict[str, Any]], None]
"""Holds an operation's parameters against the service model; raises AwsError."""


class ParameterCheck:
    """Checks a value in full once; clients send the same few over and over."""

    def __init__(
        self, validate: Validate, header_members: Mapping[str, str] = HEADER_MEMBERS
    ) -> None:
        self._validate = validate
        self._members = header_members
        self._fine: set[tuple[str, str]] = set()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises ValidationError for a value that the operation does not take."""
        fine = self._fine
        for header in self._members:
            value = headers.get(header)
            if value is not None and (header, value) not in fine:
                self._check_in_full(header, value)

    def check_name(self, endpoint_name: str) -> None:
        """Raises ValidationError for what cannot be an endpoint's name."""
        self._run({"EndpointName": endpoint_name})

    def _check_in_full(self, header: str, value: str) -> None:
        self._run({self._members[header]: as_meant(value)})
        if len(self._fine) >= VALUES_REMEMBERED:
            self._fine.clear()
        if len(value) <= LONGEST_REMEMBERED:
            self._fine.add((header, value))

    def _run(self, params: dict[str, Any]) -> None:
        self._validate({"EndpointName": "any", "Body": b"", **params})
