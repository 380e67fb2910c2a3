"""CloudWatch Logs' errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = ["invalid", "no_group", "no_stream", "node_away", "not_built"]


def invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterException", message, 400)


def not_built(feature: str) -> AwsError:
    return invalid(f"Not implemented by Sagehen: {feature}.")


def no_group() -> AwsError:
    return AwsError("ResourceNotFoundException", "The specified log group does not exist.", 400)


def no_stream() -> AwsError:
    return AwsError("ResourceNotFoundException", "The specified log stream does not exist.", 400)


def node_away(nodes: str) -> AwsError:
    return AwsError(
        "ServiceUnavailableException",
        f"It may be on a machine of the cluster that does not answer now: {nodes}. Logs are kept "
        "where containers run; see `sagehen cluster status`.",
        503,
    )
