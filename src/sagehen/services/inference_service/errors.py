"""The reasons for refusing a request; each profile maps them to HTTP statuses."""

__all__ = ["Failed", "Full", "KeyReused", "Malformed", "Refused", "Unsupported"]


class Refused(Exception):
    """The base class; its `str()` is a sentence for the caller."""


class Malformed(Refused):
    """The body is unreadable or asks for too much. Without a message: the published text."""


class Unsupported(Refused):
    """The type is not on the white list."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"The type {kind!r} is not on the white list.")
        self.kind = kind


class Full(Refused):
    """The limit is reached, and any queue is full."""

    def __init__(self, kind: str, limit: int, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.limit = limit


class KeyReused(Refused):
    """The Idempotency-Key was used with another body."""


class Failed(Refused):
    """The job could not be made, by no fault of the caller."""
