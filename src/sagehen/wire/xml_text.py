"""Text in XML."""

import re

__all__ = ["escape_controls"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f]")


def escape_controls(xml: str) -> str:
    """XML text with what it cannot hold raw as character references."""
    return _CONTROLS.sub(lambda found: f"&#x{ord(found[0]):x};", xml)
