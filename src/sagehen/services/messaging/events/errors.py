"""EventBridge's errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = [
    "bad_pattern",
    "existing",
    "invalid",
    "missing",
    "no_bus",
    "no_rule",
    "not_built",
    "over_limit",
]


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message, 400)


def not_built(feature: str, instead: str = "") -> AwsError:
    """`instead` is a sentence about what is supported."""
    return invalid(f"Not implemented by Sagehen: {feature}.{instead and ' ' + instead}")


def bad_pattern(reason: str) -> AwsError:
    return AwsError(
        "InvalidEventPatternException", f"Event pattern is not valid. Reason: {reason}", 400
    )


def no_bus(name: str) -> AwsError:
    return missing(f"Event bus {name}")


def no_rule(name: str) -> AwsError:
    return AwsError(
        "ResourceNotFoundException", f"Rule {name} does not exist on EventBus default.", 400
    )


def missing(resource: str) -> AwsError:
    """`resource` starts the message: `Connection 'mine'`."""
    return AwsError("ResourceNotFoundException", f"{resource} does not exist.", 400)


def existing(kind: str, name: str) -> AwsError:
    return AwsError("ResourceAlreadyExistsException", f"{kind} {name} already exists.", 400)


def over_limit(message: str) -> AwsError:
    return AwsError("LimitExceededException", message, 400)
