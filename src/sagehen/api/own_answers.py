"""What own paths read, and answer: JSON, and our errors as statuses with a `message`."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sagehen.errors import AlreadyExists, Conflict, Invalid, NotFound, SagehenError, Unavailable
from sagehen.wire.faults import AwsError

__all__ = ["aws_refusal", "json_answer", "number_in", "refusal", "whole_body"]

_STATUSES: tuple[tuple[type[SagehenError], int], ...] = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (Conflict, 409),
    (Invalid, 400),
    (Unavailable, 503),
)


def json_answer(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def refusal(error: SagehenError) -> Response:
    """Why something is not done."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return json_answer({"message": str(error)}, status)


def aws_refusal(error: AwsError) -> Response:
    """An AWS error as JSON, with its code where API Gateway has it."""
    answer = json_answer({"message": error.message}, error.status or 400)
    answer.headers["x-amzn-errortype"] = error.code
    return answer


async def whole_body(request: Request, most_bytes: int) -> bytes:
    """The body.

    Raises:
        Invalid: it is longer than `most_bytes`.
        ClientDisconnect: the client did not stay until it was whole.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise Invalid(f"The body may have {most_bytes} bytes at most.")
    return bytes(body)


def number_in(
    query: Mapping[str, str], name: str, default: int | None, least: int, most: int
) -> int:
    """A number of the query, `default` where it is not there.

    Raises:
        Invalid: it is none or out of bounds, or is missing and has no default.
    """
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text and text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise Invalid(f"{name} must be a number from {least} to {most}.")
