"""Filter patterns: terms and quoted phrases, all of them, any of them (`?`), none of them (`-`)."""

import re
from collections.abc import Callable

from sagehen.api.cloudwatch_logs.refusals import invalid, not_built

__all__ = ["read_filter"]

_TERM = re.compile(r'([?-]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))(?=\s|$)')


def read_filter(pattern: str) -> Callable[[str], bool]:
    """The test of a message that a pattern stands for; case counts.

    Raises:
        AwsError: it is malformed, or looks into JSON, columns or by a regular expression.
    """
    text = pattern.strip()
    for start, kind in (("{", "JSON"), ("[", "columns"), ("%", "regular expressions")):
        if text.startswith(start):
            raise not_built(f"filter patterns over {kind} ({text[:64]}); terms and phrases are")
    needed, any_of, excluded = _terms(text)

    def wanted(message: str) -> bool:
        return (
            all(one in message for one in needed)
            and (not any_of or any(one in message for one in any_of))
            and not any(one in message for one in excluded)
        )

    return wanted


def _terms(text: str) -> tuple[list[str], list[str], list[str]]:
    by_sign: dict[str, list[str]] = {"": [], "?": [], "-": []}
    place = 0
    while place < len(text):
        found = _TERM.match(text, place)
        if found is None:
            raise invalid(
                f"Invalid filter pattern: it cannot be read from character {place + 1} on."
            )
        phrase = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
        if found[2] is None and phrase.startswith("%"):
            raise not_built(f"filter patterns over regular expressions ({phrase[:64]})")
        by_sign[found[1]].append(phrase)
        place = found.end()
        place += len(text[place:]) - len(text[place:].lstrip())
    return by_sign[""], by_sign["?"], by_sign["-"]
