"""What an ASGI server hands over, as the protocols see it."""

from starlette.types import Scope

from sagehen.wire.http import Request

__all__ = ["request_head"]


def request_head(scope: Scope) -> Request:
    """The request without its body."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Request(
        method=scope["method"],
        raw_path=scope["raw_path"].decode("latin-1"),
        raw_query=scope["query_string"].decode("latin-1"),
        headers=headers,
    )
