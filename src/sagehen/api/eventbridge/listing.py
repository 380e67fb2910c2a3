"""EventBridge's pages, in the order of names."""

import base64
import binascii
from typing import Any

from sagehen.api.eventbridge.refusals import invalid

__all__ = ["after", "limit_of", "page_of"]

DEFAULT_LIMIT = 100


def after(params: dict[str, Any]) -> str:
    """The name that the page begins behind; raises AwsError where NextToken is none of ours."""
    try:
        name = base64.urlsafe_b64decode(params.get("NextToken", "")).decode("ascii")
    except (binascii.Error, ValueError):
        raise invalid("Invalid pagination token.") from None
    if not name.isprintable():
        raise invalid("Invalid pagination token.")
    return name


def limit_of(params: dict[str, Any]) -> int:
    """How many there are on a page; read one more, and it is known whether there is a next."""
    limit: int = params.get("Limit", DEFAULT_LIMIT)
    return limit


def page_of(member: str, found: list[Any], names: list[str], limit: int) -> dict[str, Any]:
    """The answer with one page of `found`, which may be one longer; `names` are theirs."""
    answer: dict[str, Any] = {member: found[:limit]}
    if len(found) > limit:
        answer["NextToken"] = base64.urlsafe_b64encode(names[limit - 1].encode()).decode()
    return answer
