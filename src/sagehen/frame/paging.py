"""Pages of lists that are ordered by name: a NextToken is the last name of the page before.

Callers read one more record than a page holds, to know whether there is a next page.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from sagehen.wire.errors import AwsError

__all__ = ["page_of", "read_token", "write_token"]


def read_token(token: str, bad_token: Callable[[], AwsError], prefix: str = "") -> str:
    """Returns the name after which a page begins; raises `bad_token()` for a foreign token.

    Args:
        prefix: with which all names begin.
    """
    try:
        name = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise bad_token() from None
    if not name.isprintable() or (name and not name.startswith(prefix)):
        raise bad_token()
    return name


def write_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def page_of(member: str, items: Sequence[Any], names: Sequence[str], limit: int) -> dict[str, Any]:
    """`items` and their `names` may be one more than `limit`."""
    page: dict[str, Any] = {member: list(items[:limit])}
    if len(items) > limit:
        page["NextToken"] = write_token(names[limit - 1])
    return page
