"""SNS's errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = ["check_arn_length", "invalid", "no_subscription", "no_topic"]


def invalid(parameter: str, reason: str = "") -> AwsError:
    """`parameter` is SNS's name."""
    suffix = f" Reason: {reason}" if reason else ""
    return AwsError("InvalidParameter", f"Invalid parameter: {parameter}{suffix}")


def check_arn_length(parameter: str, arn: str) -> None:
    """Raises AwsError."""
    count = len(arn.split(":"))
    if count < 6:
        raise invalid(parameter, f"An ARN must have at least 6 elements, not {count}")


def no_topic() -> AwsError:
    return AwsError("NotFound", "Topic does not exist")


def no_subscription() -> AwsError:
    return AwsError("NotFound", "Subscription does not exist")
