"""The errors of SageMaker's operations, in its own words where these are known."""

from collections.abc import Mapping
from typing import Any

from sagehen.wire.errors import AwsError

__all__ = [
    "existing",
    "in_progress",
    "missing",
    "not_built",
    "over_limit",
    "quota_exceeded",
    "refuse_unbuilt",
    "refused",
]


def refused(message: str) -> AwsError:
    """Returns SageMaker's one error for all invalid requests."""
    return AwsError("ValidationException", message, 400)


def not_built(feature: str) -> AwsError:
    """Refuses a feature that Sagehen does not have, rather than ignore it."""
    return refused(f"Not implemented by Sagehen yet: {feature}.")


def refuse_unbuilt(params: Mapping[str, Any], unbuilt: Mapping[str, str]) -> None:
    """Raises AwsError for members of features that Sagehen does not have: `unbuilt`, by member."""
    for member, feature in unbuilt.items():
        # An empty list asks for nothing; an empty structure may ask for defaults.
        if member in params and params[member] != []:
            raise not_built(feature)


def missing(kind: str, arn: str) -> AwsError:
    return refused(f'Could not find {kind} "{arn}".')


def existing(kind: str, arn: str) -> AwsError:
    return refused(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> AwsError:
    """Returns DeleteEndpoint's error, too."""
    return refused(f'Cannot update in-progress endpoint "{arn}".')


def over_limit(message: str) -> AwsError:
    return AwsError("ResourceLimitExceeded", message, 400)


def quota_exceeded(quota: str, limit: int, used: int, delta: int, reason: str) -> AwsError:
    return over_limit(
        f"The account-level service limit '{quota}' is {limit} Instances, with current utilization "
        f"of {used} Instances and a request delta of {delta} Instances. Please use AWS Service "
        "Quotas to request an increase for this quota. If AWS Service Quotas is not available, "
        f"contact AWS support to request an increase for this quota. ({reason})"
    )
