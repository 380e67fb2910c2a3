"""What the server and a worker say to each other. A body travels behind its message, as it is.

A worker does one model's calls in the order in which they were sent, each answered before the next
begins: of what was sent and is not answered, only the first can have begun.
"""

from collections.abc import Mapping

import msgspec

__all__ = [
    "Abandon",
    "Answered",
    "Call",
    "Failed",
    "FromWorker",
    "Load",
    "Loaded",
    "Over",
    "Piece",
    "Taken",
    "ToWorker",
    "Unload",
    "Unloaded",
]


class _Message(msgspec.Struct, array_like=True, gc=False):
    model: int
    """The server's number for it; never used again for another."""


class Load(_Message, tag=1):
    folder: str


class Unload(_Message, tag=2):
    pass


class Call(_Message, tag=3):
    """Answer the request whose body follows."""

    number: int
    """Of this call, within its model."""
    headers: Mapping[bytes, bytes]


class Taken(_Message, tag=4):
    """So many bytes of the answer that is made in pieces were taken."""

    number: int
    count: int


class Abandon(_Message, tag=5):
    """Nobody wants the answer's further pieces."""

    number: int


class Loaded(_Message, tag=6):
    pass


class Failed(_Message, tag=7):
    """It did not load."""

    kind: str
    """`memory`, `said` (the message is for the user) or `raised`."""
    message: str
    lines: str
    """The traceback."""


class Unloaded(_Message, tag=8):
    pass


class Answered(_Message, tag=9):
    """The answer; its body follows, or the first piece of it."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    close: bool
    seconds: float
    """What the call took."""
    more: bool
    """Pieces follow."""


class Piece(_Message, tag=10):
    pass


class Over(_Message, tag=11):
    """No further piece comes."""

    whole: bool


ToWorker = Load | Unload | Call | Taken | Abandon
FromWorker = Loaded | Failed | Unloaded | Answered | Piece | Over
