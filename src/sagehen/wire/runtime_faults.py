"""Errors of sagemaker-runtime that more than one of its operations answers with."""

from sagehen.wire.faults import AwsError

__all__ = ["endpoint_not_found", "unavailable", "validation_error"]


def validation_error(message: str) -> AwsError:
    """The runtime's name for it is `ValidationError`, not `ValidationException`."""
    return AwsError("ValidationError", message, 400)


def endpoint_not_found(name: str, account_id: str) -> AwsError:
    return validation_error(f"Endpoint {name} of account {account_id} not found.")


def unavailable(message: str) -> AwsError:
    """Nothing was begun: asking again may help, and the SDKs do so by themselves."""
    return AwsError("ServiceUnavailable", message, 503)
