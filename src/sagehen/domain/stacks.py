"""Stacks: what `sagehen apply` keeps of what it has made of a template."""

from typing import Any

import msgspec

__all__ = ["StackClaim", "StackRecord"]


class StackClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on a stack now. One that is not renewed in time is no claim any more."""

    holder: str
    """Of one run, and of no other."""
    who: str
    """For people: user, machine and process."""
    since: float
    """Seconds since the epoch, as every time here."""
    expires_at: float


class StackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stack, as its client wrote it."""

    name: str
    version: int
    """One more with every write."""
    created_at: float
    modified_at: float
    content: dict[str, Any]
    """The client's: nothing here reads it."""
    claim: StackClaim | None = None
