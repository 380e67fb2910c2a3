"""Requests the server's own paths for the command line."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from sagehen.base.credentials import load_token
from sagehen.base.errors import Conflict, Invalid, NotFound, SagehenError, Unavailable
from sagehen.base.home import Home, lock_holder

__all__ = ["call_control", "call_server"]

_TIMEOUT_SECONDS = 15
"""more than a server takes whose agent hangs, on a busy machine"""
_ERRORS: dict[int, type[SagehenError]] = {
    400: Invalid,
    403: Invalid,
    404: NotFound,
    409: Conflict,
    503: Unavailable,
}


def call_control(
    home: Home,
    path: str,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """Returns the JSON answer, with the server's address as `url`; `path` is percent-encoded.

    Raises Unavailable if no server answers, HomeError for an unreadable token, or Invalid, NotFound
    or Conflict by status.
    """
    if not home.address.exists():
        if (pid := lock_holder(home)) is not None:
            raise Unavailable(
                f"The server with the home {home.path} (process id {pid}) is starting, or "
                "stopping. Try again in a moment."
            )
        raise _no_server(home)
    try:
        return call_server(home.address.read_text(), home, path, method, body, timeout_seconds)
    except Unavailable as error:
        # A server that was killed has left its address.
        refused = isinstance(getattr(error.__cause__, "reason", None), ConnectionRefusedError)
        if refused and lock_holder(home) is None:
            raise _no_server(home) from error
        raise


def _no_server(home: Home) -> Unavailable:
    return Unavailable(
        f"No server runs with the home {home.path}. Start one: sagehen up --home {home.path}"
    )


def call_server(
    url: str,
    home: Home,
    path: str,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """Like `call_control`, at another address, with the token of `home`."""
    request = urllib.request.Request(f"{url}/_sagehen/{path}", method=method)
    if home.token.exists():  # older servers have none
        request.add_header("Authorization", f"Bearer {load_token(home.token)}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    # A proxy would try its own 127.0.0.1.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            return {"url": url, **json.load(response)}
    except urllib.error.HTTPError as error:
        with error:
            raise _error_of(url, error) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"The server at {url} does not answer: {reason}") from error


def _error_of(url: str, error: urllib.error.HTTPError) -> SagehenError:
    kind = _ERRORS.get(error.code)
    try:
        fields = json.load(error)
        # A gateway that does not reach control writes SageMaker's own `Message`.
        message = str(fields["Message"] if "Message" in fields else fields["message"])
    except (ValueError, TypeError, KeyError, OSError, http.client.HTTPException):
        kind = None
    if kind is None:
        return Unavailable(f"The server at {url} does not answer: {error}")
    return kind(message)
