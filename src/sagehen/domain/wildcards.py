"""`wildcard`: `*` stands for any characters or none, `\\*` for itself, `\\\\` for a backslash."""

from collections.abc import Callable

from sagehen.errors import Invalid

__all__ = ["read_wildcard"]


def read_wildcard(text: str) -> Callable[[str], bool]:
    """The test that a pattern with wildcards stands for; it takes linear time but for repeats.

    Raises:
        Invalid: two wildcards follow one another, or something else is escaped.
    """
    first, *rest = _pieces(text)
    if not rest:
        return lambda value: value == first
    *middle, last = rest

    def matches(value: str) -> bool:
        if len(value) < len(first) + len(last):
            return False
        if not (value.startswith(first) and value.endswith(last)):
            return False
        place, end = len(first), len(value) - len(last)
        # The first occurrence of each will do: what is left for the others only grows by that.
        for piece in middle:
            found = value.find(piece, place, end)
            if found < 0:
                return False
            place = found + len(piece)
        return True

    return matches


def _pieces(text: str) -> list[str]:
    """What lies between the wildcards."""
    pieces, escaped = [""], False
    for place, character in enumerate(text):
        if escaped:
            if character not in "*\\":
                raise Invalid(f"Invalid escape character at pos {place}")
            pieces[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "*":
            if pieces[-1] == "" and len(pieces) > 1:
                raise Invalid(f"Consecutive wildcard characters at pos {place - 1}")
            pieces.append("")
        else:
            pieces[-1] += character
    if escaped:
        raise Invalid(f"Invalid escape character at pos {len(text) - 1}")
    return pieces
