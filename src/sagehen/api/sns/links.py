"""The links in messages: GET requests that nobody signs, and that only their receivers know."""

from urllib.parse import parse_qs

from sagehen.api.sns.confirmation import LINKED
from sagehen.wire.http import Request

__all__ = ["asked_by_link"]


def asked_by_link(request: Request) -> bool:
    """Whether a request is a SubscribeURL or an UnsubscribeURL that was followed."""
    return (
        request.method == "GET"
        and request.raw_path == "/"
        and "Action=" in request.raw_query
        and "authorization" not in request.headers
        and "X-Amz-Signature=" not in request.raw_query
        and parse_qs(request.raw_query).get("Action", [""])[0] in LINKED
    )
