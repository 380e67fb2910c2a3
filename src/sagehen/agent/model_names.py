"""`TargetModel`: what may be asked for, and what the container knows it by."""

import hashlib

from sagehen.errors import Invalid

__all__ = ["check_target", "opaque_name"]

LONGEST_TARGET = 1024


def check_target(target: str) -> None:
    """Refuse what cannot be the key of an object below the prefix.

    Raises:
        Invalid: with SageMaker's form of message.
    """
    if not target or len(target) > LONGEST_TARGET:
        bound = "less than or equal to 1024" if target else "greater than or equal to 1"
        raise Invalid(_refusal(target, f"Member must have length {bound}"))
    if not target.isprintable() or target[0].isspace():
        raise Invalid(
            _refusal(target, r"Member must satisfy regular expression pattern: \A\S[\p{Print}]*\z")
        )
    if target.startswith("/") or ".." in target.split("/") or target.endswith("/"):
        raise Invalid(
            _refusal(target, "Member must be the key of an object relative to the ModelDataUrl")
        )


def opaque_name(target: str) -> str:
    """What a container knows a target by: of the characters that every server takes in a path.

    Made of the target alone, not of the object's content: a model that is loaded serves on when
    its object is overwritten, as in SageMaker, which asks for a new key with each new model.
    """
    return hashlib.sha256(target.encode()).hexdigest()[:32]


def _refusal(target: str, constraint: str) -> str:
    shown = target if len(target) <= 100 else target[:100] + "…"
    return (
        f"1 validation error detected: Value '{shown}' at 'targetModel' failed to satisfy "
        f"constraint: {constraint}"
    )
