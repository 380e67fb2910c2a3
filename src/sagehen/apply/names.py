"""Names for what a template leaves unnamed: of the stack, the logical id and eight digits."""

import hashlib
import json
from typing import Any

__all__ = ["content_digits", "generated_name", "place_digits"]

_DIGITS = 8


def generated_name(stack: str, logical_id: str, digits: str, longest: int) -> str:
    """`<stack>-<logical id>-<digits>`, each of the first two cut where it has to be."""
    room = longest - len(digits) - 2
    if len(stack) + len(logical_id) > room:
        stack = stack[: max(room // 2, room - len(logical_id))].rstrip("-")
        logical_id = logical_id[: room - len(stack)]
    return f"{stack}-{logical_id}-{digits}"


def content_digits(properties: dict[str, Any]) -> str:
    """The same for the same properties: what cannot change is made anew under another name."""
    return _digits(json.dumps(properties, sort_keys=True, separators=(",", ":")))


def place_digits(account_id: str, stack: str, logical_id: str) -> str:
    """The same whenever the stack is applied."""
    return _digits(f"{account_id}/{stack}/{logical_id}")


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
