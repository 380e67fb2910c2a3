"""The one exception that becomes an AWS error answer."""

from typing import Any

__all__ = ["AwsError"]


class AwsError(Exception):
    """An error as an AWS client is told of it.

    Args:
        code: the service's error code, e.g. `ValidationException`.
        message: the sentence, in AWS's wording where it is known.
        status: the HTTP status; the service model's (or 400) where None.
        members: further modelled members of the error shape, e.g. `OriginalStatusCode`.
    """

    def __init__(self, code: str, message: str, status: int | None = None, **members: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.members = members
