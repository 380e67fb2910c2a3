"""CloudWatch's errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = [
    "combination",
    "invalid",
    "invalid_token",
    "missing",
    "not_built",
    "over_limit",
    "refused",
]


def invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterValue", message, 400)


def combination(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message, 400)


def missing(name: str) -> AwsError:
    return AwsError("MissingParameter", f"The parameter {name} is required.", 400)


def refused(message: str) -> AwsError:
    """Returns the error that GetMetricData uses for everything."""
    return AwsError("ValidationError", message, 400)


def invalid_token() -> AwsError:
    return AwsError("InvalidNextToken", "Invalid nextToken", 400)


def over_limit(message: str) -> AwsError:
    return AwsError("LimitExceeded", message, 400)


def not_built(feature: str) -> AwsError:
    """Refuses a feature that is not implemented: better than ignoring it."""
    return invalid(f"Not implemented by Sagehen yet: {feature}.")
