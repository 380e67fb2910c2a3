"""What a page is continued by, where it is not a place in a log."""

import base64
from typing import Any, TypeVar

import msgspec

from sagehen.api.cloudwatch_logs.refusals import invalid

__all__ = ["read_token", "write_token"]

T = TypeVar("T")


def write_token(place: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def read_token(token: str, kind: type[T]) -> T:
    """The place that a page ended at; raises AwsError where the token is none of ours."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=kind)
    except (ValueError, msgspec.DecodeError):
        raise invalid("The specified nextToken is invalid.") from None
