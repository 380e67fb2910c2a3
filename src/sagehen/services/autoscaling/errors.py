"""Application Auto Scaling's errors, in its own wording where known."""

from sagehen.services.autoscaling.records import TargetKey
from sagehen.wire.errors import AwsError

__all__ = [
    "invalid",
    "invalid_token",
    "no_policy",
    "no_resource",
    "no_scheduled_action",
    "no_target",
    "not_built",
    "over_limit",
    "too_many_tags",
]


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message, 400)


def not_built(feature: str, instead: str = "") -> AwsError:
    """Refuses a feature that Sagehen does not have; `instead` says what there is."""
    return invalid(f"Not implemented by Sagehen: {feature}.{instead and ' ' + instead}")


def over_limit(message: str) -> AwsError:
    return AwsError("LimitExceededException", message, 400)


def invalid_token() -> AwsError:
    return AwsError("InvalidNextTokenException", "The NextToken is not valid.", 400)


def no_target(key: TargetKey) -> AwsError:
    return _missing(f"No scalable target registered for {_of(key)}")


def no_policy(key: TargetKey, name: str) -> AwsError:
    return _missing(f"No scaling policy found for {_of(key)}, policy name: {name}")


def no_scheduled_action(key: TargetKey, name: str) -> AwsError:
    return _missing(f"No scheduled action found for {_of(key)}, scheduled action name: {name}")


def no_resource(arn: str) -> AwsError:
    """Returns the error of the operations on tags."""
    return AwsError(
        "ResourceNotFoundException",
        f"There is no scalable target {arn}.",
        400,
        ResourceName=arn,
    )


def too_many_tags(arn: str, most: int) -> AwsError:
    message = f"A scalable target may have {most} tags."
    return AwsError("TooManyTagsException", message, 400, ResourceName=arn)


def _of(key: TargetKey) -> str:
    return (
        f"service namespace: {key.namespace}, resource ID: {key.resource_id}, "
        f"scalable dimension: {key.dimension}"
    )


def _missing(message: str) -> AwsError:
    return AwsError("ObjectNotFoundException", message, 400)
