"""The errors Sagehen raises to itself. They know no HTTP and no AWS; the edges translate them.

SagehenError
├── Invalid           what was asked for cannot be right
│   └── SettingError  a setting is unknown or has a bad value
├── NotFound          the named thing does not exist
├── AlreadyExists     a thing of that name exists already
├── Conflict          the thing is in a state that does not allow it
├── LimitExceeded     a bound would be passed
├── Unavailable       it cannot be done now; asking again later may help
│   └── StateFull     the disk that holds the state is full
├── StateError        the stored state cannot be used (not reachable, or of a newer version)
├── HomeError         the home cannot be used (not writable, in use, too long)
├── BackupError       a backup cannot be taken or brought back
└── ArtifactError     model data could not be fetched or unpacked
    ├── ArtifactMissing     nothing is stored at the address
    └── ArtifactRejected    the archive is broken or not safe to unpack
"""

__all__ = [
    "AlreadyExists",
    "ArtifactError",
    "ArtifactMissing",
    "ArtifactRejected",
    "BackupError",
    "Conflict",
    "HomeError",
    "Invalid",
    "LimitExceeded",
    "NotFound",
    "SagehenError",
    "SettingError",
    "StateError",
    "StateFull",
    "Unavailable",
]


class SagehenError(Exception):
    """The root: `str()` of it is a sentence for the user."""


class Invalid(SagehenError):
    """What was asked for cannot be right."""


class SettingError(Invalid):
    """A setting is unknown or has a bad value."""


class NotFound(SagehenError):
    """The named thing does not exist."""


class AlreadyExists(SagehenError):
    """A thing of that name exists already."""


class Conflict(SagehenError):
    """The thing is in a state that does not allow what was asked."""


class LimitExceeded(SagehenError):
    """A bound would be passed."""


class Unavailable(SagehenError):
    """It cannot be done now; asking again later may help."""


class StateError(SagehenError):
    """The stored state cannot be used: its database is not reachable, or of a newer version."""


class StateFull(Unavailable):
    """The disk that holds the state is full."""


class HomeError(SagehenError):
    """The home cannot be used: not writable, in use by another server, or its path is too long."""


class BackupError(SagehenError):
    """A backup cannot be taken, or is not whole, or cannot be brought back."""


class ArtifactError(SagehenError):
    """Model data could not be fetched or unpacked."""


class ArtifactMissing(ArtifactError):
    """Nothing is stored at the address."""


class ArtifactRejected(ArtifactError):
    """The archive is broken, or unpacking it would not be safe."""
