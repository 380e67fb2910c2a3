"""What a stack's record holds: the resources that were made, and what each was made of."""

from typing import Any, Literal

import msgspec

from sagehen.apply.hidden import has_plain, masked

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
    """Where in its properties there is what parameters with NoEcho are, or is made of it. On the
    server there are markers in its place (`hidden.py`)."""
    phase: Phase = "ready"


class StackContent(msgspec.Struct, frozen=True, kw_only=True):
    resources: dict[str, Kept] = {}
    """By logical id."""
    leftovers: tuple[Kept, ...] = ()
    """Replaced, and to be deleted once all else has succeeded."""
    outputs: dict[str, str] = {}
    """Those that have something of a parameter with NoEcho are markers."""

    @property
    def has_plain(self) -> bool:
        """Whether a version before has written in clear what is to be hidden."""
        kept = (*self.resources.values(), *self.leftovers)
        return any(has_plain(one.properties, one.hidden) for one in kept)

    def masked(self) -> "StackContent":
        """The same, with markers for all that is to be hidden."""
        resources = {name: _masked(one) for name, one in self.resources.items()}
        leftovers = tuple(map(_masked, self.leftovers))
        return msgspec.structs.replace(self, resources=resources, leftovers=leftovers)


def _masked(kept: Kept) -> Kept:
    if not kept.hidden:
        return kept
    return msgspec.structs.replace(kept, properties=masked(kept.properties, kept.hidden))
