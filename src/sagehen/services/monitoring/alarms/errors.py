"""Errors of alarms; the others are CloudWatch's."""

from sagehen.wire.errors import AwsError

__all__ = ["conflict", "no_alarm", "no_tagged_alarm", "not_json"]


def no_alarm(name: str) -> AwsError:
    return AwsError("ResourceNotFound", f"There is no alarm with the name {name}.", 404)


def no_tagged_alarm(arn: str) -> AwsError:
    """The tag operations have an error of their own."""
    members = {"ResourceType": "Alarm", "ResourceId": arn}
    return AwsError(
        "ResourceNotFoundException", f"There is no alarm with the ARN {arn}.", 404, **members
    )


def conflict(message: str) -> AwsError:
    return AwsError("ResourceConflict", message, 409)


def not_json() -> AwsError:
    return AwsError("InvalidFormat", "The parameter StateReasonData must be a JSON object.", 400)
