"""The policy of a browser-based upload: what its signer allows the form to contain.

{"expiration": "2026-11-01T12:00:00Z", "conditions": [{"bucket": "uploads"},
["starts-with", "$key", "user/"], ["content-length-range", 1, 1048576]]}
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sagehen.wire.errors import AwsError

__all__ = ["Policy", "read_policy"]

_EXPIRATION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")
_UNCONDITIONAL = ("awsaccesskeyid", "file", "policy", "signature", "x-amz-signature")
_IGNORED = "x-ignore-"
_RANGE = "content-length-range"
_MOST_DIGITS = 18


@dataclass(frozen=True)
class _Condition:
    operation: str
    """`eq` or `starts-with`"""
    name: str
    """with the policy's leading `$`"""
    value: str

    @property
    def field(self) -> str:
        return self.name.removeprefix("$").lower()

    def holds(self, field_value: str | None) -> bool:
        if field_value is None or not self.name.startswith("$"):
            return False
        if self.operation == "eq":
            return field_value == self.value
        values = field_value.split(",") if self.field == "content-type" else [field_value]
        return all(value.strip().startswith(self.value) for value in values)


@dataclass(frozen=True)
class Policy:
    """A well-formed policy."""

    expires_at: float
    """seconds since the epoch"""
    conditions: tuple[_Condition, ...]
    least_bytes: int
    most_bytes: int

    def check(self, fields: Mapping[str, str], names: Mapping[str, str], now: float) -> None:
        """Raises AwsError AccessDenied if the policy forbids the form.

        Args:
            fields: form fields and the bucket, by lower-case name.
            names: names as sent.
        """
        if now >= self.expires_at:
            raise _denied("Policy expired.")
        for condition in self.conditions:
            if not condition.holds(fields.get(condition.field)):
                broken = [condition.operation, condition.name, condition.value]
                raise _denied(f"Policy Condition failed: {json.dumps(broken, ensure_ascii=False)}")
        allowed = {condition.field for condition in self.conditions}.union(_UNCONDITIONAL)
        # A policy that omits the bucket would be valid for all buckets.
        extra = [
            written
            for name, written in {"bucket": "bucket", **names}.items()
            if name not in allowed and not name.startswith(_IGNORED)
        ]
        if extra:
            raise _denied(f"Extra input fields: {', '.join(extra)}")


def read_policy(encoded: str, most_bytes: int) -> Policy:
    """Raises AwsError InvalidPolicyDocument. `most_bytes` limits the file; the policy may set
    less."""
    try:
        document = json.loads(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _invalid("Invalid JSON.") from None
    if not isinstance(document, dict):
        raise _invalid("Invalid JSON.")
    for name in document:
        if name not in ("expiration", "conditions"):
            raise _invalid(f"Unexpected: '{name}'")
    if "expiration" not in document:
        raise _invalid("Policy missing expiration.")
    if "conditions" not in document:
        raise _invalid("Policy missing conditions.")
    if not isinstance(document["conditions"], list):
        raise _invalid("Invalid 'conditions' value: must be a List.")
    conditions, least = [], 0
    for item in document["conditions"]:
        if isinstance(item, list) and item and str(item[0]).lower() == _RANGE:
            low, high = _read_range(item)
            least, most_bytes = max(least, low), min(most_bytes, high)
        else:
            conditions.append(_read_condition(item))
    return Policy(_read_expiration(document["expiration"]), tuple(conditions), least, most_bytes)


def _read_expiration(value: Any) -> float:
    try:
        if isinstance(value, str) and _EXPIRATION.fullmatch(value):
            return datetime.fromisoformat(value).timestamp()
    except ValueError:
        pass
    raise _invalid(f"Invalid 'expiration' value: '{value}'")


def _read_condition(item: Any) -> _Condition:
    if isinstance(item, dict):
        if len(item) != 1:
            raise _invalid(
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property "
                "specified."
            )
        ((name, value),) = item.items()
        if not isinstance(value, str):
            raise _invalid("Invalid Simple-Condition: value must be a string.")
        return _Condition("eq", f"${name}", value)
    if not isinstance(item, list):
        raise _invalid("Invalid condition: must be a List or Object.")
    if not item:
        raise _invalid("Invalid Condition: missing operation identifier.")
    operation = str(item[0]).lower()
    if operation not in ("eq", "starts-with"):
        raise _invalid(f"Invalid Condition: unknown operation '{item[0]}'.")
    if len(item) != 3:
        raise _invalid(f"Invalid {operation}: wrong number of arguments.")
    if not isinstance(item[1], str) or not isinstance(item[2], str):
        raise _invalid("Invalid JSON.")
    return _Condition(operation, item[1], item[2])


def _read_range(item: list[Any]) -> tuple[int, int]:
    if len(item) != 3:
        raise _invalid(f"Invalid {_RANGE}: wrong number of arguments.")
    bounds = []
    for bound in item[1:]:
        if isinstance(bound, bool) or not isinstance(bound, int | str):
            raise _invalid("Invalid JSON.")
        digits = str(bound)
        if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            if isinstance(bound, str):
                raise _denied(f"Policy Condition failed: {json.dumps(item, ensure_ascii=False)}")
            raise _invalid(f"Invalid {_RANGE}: the bounds must be whole numbers from 0 on.")
        bounds.append(int(digits))
    return bounds[0], bounds[1]


def _denied(reason: str) -> AwsError:
    return AwsError("AccessDenied", f"Invalid according to Policy: {reason}", 403)


def _invalid(reason: str) -> AwsError:
    return AwsError("InvalidPolicyDocument", f"Invalid Policy: {reason}", 400)
