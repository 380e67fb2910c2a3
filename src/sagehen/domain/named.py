"""Records that have a name of their own."""

import msgspec

__all__ = ["NamedRecord"]


class NamedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What has a name of its own."""

    name: str
    arn: str
    created_at: float
    """Seconds since the epoch, as every `_at`."""
