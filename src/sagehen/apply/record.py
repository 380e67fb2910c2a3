"""What a stack's record holds: the resources that were made, and what each was made of."""

from typing import Any, Literal

import msgspec

__all__ = ["Kept", "Phase", "StackContent"]

Phase = Literal["creating", "ready", "updating"]
"""Written before a step and after it: whoever finds another than `ready` finishes that step."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of the stack."""

    logical_id: str
    type: str
    name: str
    """What the API knows it by; empty where that is told only when it is made."""
    properties: dict[str, Any]
    attributes: dict[str, str] = {}
    """Ref, and what Fn::GetAtt is asked for."""
    needs: tuple[str, ...] = ()
    """The logical ids of those that had to be there before it."""
    deletion_policy: str = "Delete"
    hidden: tuple[str, ...] = ()
    """Where in its properties there is what parameters with NoEcho are, or is made of it."""
    phase: Phase = "ready"


class StackContent(msgspec.Struct, frozen=True, kw_only=True):
    resources: dict[str, Kept] = {}
    """By logical id."""
    leftovers: tuple[Kept, ...] = ()
    """Replaced, and to be deleted once all else has succeeded."""
    outputs: dict[str, str] = {}
