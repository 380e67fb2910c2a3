"""Limits on one client's connection to a server."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["MAX_PIECE_BYTES", "ConnectionLimit", "ConnectionLimits"]

MAX_PIECE_BYTES = 256 * 1024
"""received at once: that much may precede a head in its first piece"""


class ConnectionLimit(str, Enum):  # noqa: UP042
    """The limits that a server counts when they are hit."""

    __str__ = str.__str__

    HEAD = "head"
    HEAD_TIMEOUT = "head_timeout"
    STALL = "stall"
    ANSWER_STALL = "answer_stall"
    IDLE = "idle"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Sizes and times; `math.inf` is no limit."""

    head_bytes: int
    head_bytes_setting: str = ""
    """the name of what sets it, for the client"""
    head_seconds: float
    """from a head's first byte: stops clients that drip it"""
    stall_seconds: float
    """for the next piece of a body, and for a client to read"""
    answer_seconds: float
    """for the next piece of an answer, from the handler"""
    idle_seconds: float
    """between requests"""
