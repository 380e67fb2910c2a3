"""SNS's errors, in its words where they are known."""

from sagehen.wire.faults import AwsError

__all__ = ["invalid", "no_subscription", "no_topic"]


def invalid(parameter: str, why: str = "") -> AwsError:
    """`parameter` is what SNS calls the one that is wrong; `why` a reason."""
    reason = f" Reason: {why}" if why else ""
    return AwsError("InvalidParameter", f"Invalid parameter: {parameter}{reason}")


def no_topic() -> AwsError:
    return AwsError("NotFound", "Topic does not exist")


def no_subscription() -> AwsError:
    return AwsError("NotFound", "Subscription does not exist")
