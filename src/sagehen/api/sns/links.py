"""The links in messages: GET requests that nobody signs, and that only their receivers know."""

from sagehen.wire.http import Request
from sagehen.wire.parameters import parameters_of
from sagehen.wire.scope import Signing, signing_of

__all__ = ["LINKED", "looks_like_link"]

LINKED = frozenset((("sns", "ConfirmSubscription"), ("sns", "Unsubscribe")))
"""The operations, by service and name, that may be carried out for somebody who has not signed:
those of a SubscribeURL and an UnsubscribeURL. No other ever may."""


def looks_like_link(request: Request) -> bool:
    """Whether an unsigned request has the form of such a link.

    What it asks for is `wire.match`'s to say, and nothing is done unless that is in `LINKED`.
    """
    return (
        request.method == "GET"
        and request.raw_path == "/"
        and "transfer-encoding" not in request.headers
        and request.headers.get("content-length", "0") == "0"
        and signing_of(request) is Signing.NOWHERE
        and any(name == "Action" for name, _ in parameters_of(request.raw_query))
    )
