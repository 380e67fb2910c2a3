"""An invocation's parameters: read from the headers, held against the service model's limits."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sagehen.gateway.operations import Operation
from sagehen.wire.services import service
from sagehen.wire.validate import validate
from sagehen.wire.values import as_meant

__all__ = ["ParameterCheck", "check_of"]

VALUES_REMEMBERED = 10_000
LONGEST_REMEMBERED = 256

Validate = Callable[[dict[str, Any]], None]
"""Holds an operation's parameters against the service model; raises AwsError."""


class ParameterCheck:
    """Checks a value in full once; clients send the same few over and over.

    `members`: of the operation's input, by their headers.
    """

    def __init__(self, members: Mapping[str, str], validate: Validate) -> None:
        self._members = members
        self._validate = validate
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


def check_of(operation: Operation) -> ParameterCheck:
    """By botocore's model of it."""
    model = service("sagemaker-runtime").operation_model(operation.name)
    return ParameterCheck(operation.members, partial(validate, model))
