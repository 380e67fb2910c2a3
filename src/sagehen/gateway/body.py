"""The body of one request as it comes, and what all of them take of this process's memory."""

from hashlib import sha256
from typing import Any

__all__ = ["Body", "Held"]


class Held:
    """Bytes that the bodies of all requests take together, and may take."""

    def __init__(self, most_bytes: int) -> None:
        self.bytes = 0
        self.most_bytes = most_bytes

    @property
    def is_full(self) -> bool:
        return self.bytes > self.most_bytes


class Body:
    """Kept in the pieces in which it came, until `drop`."""

    __slots__ = ("_digest", "_held", "parts", "size")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._digest: Any = None
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._held.bytes += len(data)
        # Hashed piece by piece, so that a large body never holds up the others for long.
        if self.parts:
            if self._digest is None:
                self._digest = sha256(self.parts[0])
            self._digest.update(data)
        self.parts.append(data)

    def keep(self, data: bytes) -> None:
        """As `add`, where nobody will ask for the digest."""
        self.size += len(data)
        self._held.bytes += len(data)
        self.parts.append(data)

    def sha256(self) -> str:
        """In hexadecimal."""
        if self._digest is not None:
            return str(self._digest.hexdigest())
        return sha256(self.parts[0] if self.parts else b"").hexdigest()

    def drop(self) -> None:
        """It is not needed any more."""
        self._held.bytes -= self.size
        self.size = 0
        self.parts = []
