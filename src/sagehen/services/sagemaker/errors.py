"""The errors that hosting operations answer with, in SageMaker's words where they are known."""

from sagehen.wire.errors import AwsError

__all__ = [
    "existing",
    "in_progress",
    "missing",
    "not_built",
    "over_limit",
    "quota_exceeded",
    "refused",
]


def refused(message: str) -> AwsError:
    """SageMaker has one code for all that is wrong with a hosting request."""
    return AwsError("ValidationException", message, 400)


def not_built(feature: str) -> AwsError:
    """A part of SageMaker that is not here: better refused than accepted and not done."""
    return refused(f"Not implemented by Sagehen yet: {feature}.")


def missing(kind: str, arn: str) -> AwsError:
    """`kind` is `model`, `endpoint configuration` or `endpoint`."""
    return refused(f'Could not find {kind} "{arn}".')


def existing(kind: str, arn: str) -> AwsError:
    return refused(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> AwsError:
    """Also what DeleteEndpoint answers."""
    return refused(f'Cannot update in-progress endpoint "{arn}".')


def over_limit(message: str) -> AwsError:
    return AwsError("ResourceLimitExceeded", message, 400)


def quota_exceeded(quota: str, limit: int, used: int, delta: int, why: str) -> AwsError:
    """More of what `quota` counts was asked for than there may be; `why` says what sets it."""
    return over_limit(
        f"The account-level service limit '{quota}' is {limit} Instances, with current utilization "
        f"of {used} Instances and a request delta of {delta} Instances. Please use AWS Service "
        "Quotas to request an increase for this quota. If AWS Service Quotas is not available, "
        f"contact AWS support to request an increase for this quota. ({why})"
    )
