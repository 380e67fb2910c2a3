"""The exception that becomes an AWS error response, and errors of several runtime operations."""

from typing import Any

__all__ = ["AwsError", "endpoint_not_found", "unavailable", "validation_error"]


class AwsError(Exception):
    """An error to send to an AWS client.

    Args:
        code: the service's error code, e.g. `ValidationException`.
        message: in AWS's wording where it is known.
        status: the HTTP status; None takes the service model's, or 400.
        members: further members of the error shape, e.g. `OriginalStatusCode`.
    """

    def __init__(self, code: str, message: str, status: int | None = None, **members: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.members = members


def validation_error(message: str) -> AwsError:
    """The runtime's code is `ValidationError`, not `ValidationException`."""
    return AwsError("ValidationError", message, 400)


def endpoint_not_found(name: str, account_id: str) -> AwsError:
    return validation_error(f"Endpoint {name} of account {account_id} not found.")


def unavailable(message: str) -> AwsError:
    """Nothing was begun; the SDKs retry this error."""
    return AwsError("ServiceUnavailable", message, 503)
