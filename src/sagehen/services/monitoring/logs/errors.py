"""CloudWatch Logs' errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = ["invalid", "no_group", "no_stream", "not_built"]


def invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterException", message, 400)


def not_built(feature: str) -> AwsError:
    return invalid(f"Not implemented by Sagehen: {feature}.")


def no_group() -> AwsError:
    return AwsError("ResourceNotFoundException", "The specified log group does not exist.", 400)


def no_stream() -> AwsError:
    return AwsError("ResourceNotFoundException", "The specified log stream does not exist.", 400)
