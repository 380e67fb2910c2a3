"""Why the service does not do what it is asked. The profiles say which status that is.

Refused
├── Malformed     the body cannot be read, or asks for what may not be had
├── Unsupported   the type is not on the white list
├── Full          the limit is reached, and the queue with it
├── KeyReused     an Idempotency-Key came with another body before
└── Failed        the job could not be made, by no fault of the caller's
"""

__all__ = ["Failed", "Full", "KeyReused", "Malformed", "Refused", "Unsupported"]


class Refused(Exception):
    """The root; `str()` of it is a sentence for the caller."""


class Malformed(Refused):
    """The body cannot be read, or asks for what may not be had. An empty sentence stands for the
    published one."""


class Unsupported(Refused):
    """The type is not on the white list."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"The type {kind!r} is not on the white list.")
        self.kind = kind


class Full(Refused):
    """The limit is reached, and the queue with it, where there is one."""

    def __init__(self, kind: str, limit: int, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.limit = limit


class KeyReused(Refused):
    """An Idempotency-Key came with another body before."""


class Failed(Refused):
    """The job could not be made."""
