"""Sagehen's internal errors, without HTTP or AWS: the edges translate them.

SagehenError
├── Invalid
│   └── SettingError
├── NotFound
├── AlreadyExists
├── Conflict
├── LimitExceeded
├── Unavailable
│   ├── CommitUnknown
│   ├── NotLeading
│   └── StateFull
├── StateError
├── HomeError
├── BackupError
└── ArtifactError
    ├── ArtifactMissing
    └── ArtifactRejected
"""

__all__ = [
    "AlreadyExists",
    "ArtifactError",
    "ArtifactMissing",
    "ArtifactRejected",
    "BackupError",
    "CommitUnknown",
    "Conflict",
    "HomeError",
    "Invalid",
    "LimitExceeded",
    "NotFound",
    "NotLeading",
    "SagehenError",
    "SettingError",
    "StateError",
    "StateFull",
    "Unavailable",
]


class SagehenError(Exception):
    """The base class; its `str()` is a sentence for the user."""


class Invalid(SagehenError):
    """The request cannot be right."""


class SettingError(Invalid):
    """A setting is unknown or has a bad value."""


class NotFound(SagehenError):
    """The named resource does not exist."""


class AlreadyExists(SagehenError):
    """The name is taken."""


class Conflict(SagehenError):
    """The resource's state does not allow the request."""


class LimitExceeded(SagehenError):
    """A limit would be exceeded."""


class Unavailable(SagehenError):
    """Impossible now; a later try may succeed."""


class NotLeading(Unavailable):
    """This control does not lead now, so it asked nobody."""

    def __init__(self) -> None:
        super().__init__(
            "This control does not lead: another one does, or the database does not answer."
        )


class NobodyListens(Unavailable):
    """The machine answers, but no process of it listens at the address."""


class CommitUnknown(Unavailable):
    """The writes may be on disk or not: `Database.write` says what follows."""


class StateError(SagehenError):
    """The state is unusable: not reachable, damaged or of a newer version."""


class StateFull(Unavailable):
    """The disk that holds the state is full."""


class HomeError(SagehenError):
    """The home is unusable: not writable, in use, or its path is too long."""


class BackupError(SagehenError):
    """A backup cannot be made or restored."""


class ArtifactError(SagehenError):
    """Model data could not be fetched or unpacked."""


class ArtifactMissing(ArtifactError):
    """The address holds nothing."""


class ArtifactRejected(ArtifactError):
    """The archive is broken, or unsafe to unpack."""
