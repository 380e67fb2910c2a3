"""Answers of a node of a cluster about the logs in its own home, for a control that asks all.

The requests are CloudWatch's operations, with its parameters; their answers say as much more as it
takes to merge those of several nodes.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.base.concurrency import Threads
from sagehen.base.home import Home
from sagehen.services.monitoring.logs.groups import LogContext, find_group, find_stream
from sagehen.services.monitoring.logs.operations import (
    describe_log_groups,
    filter_known_streams,
    known_streams,
    list_streams,
)
from sagehen.services.monitoring.logs.reading import get_log_events
from sagehen.services.monitoring.logs.stored_log import open_log
from sagehen.services.monitoring.logs.tail import TailRequest, read_tail
from sagehen.wire.errors import AwsError

__all__ = ["NodeAnswer", "NodeRequest", "log_route"]

READERS = 2
"""requests at once, so that readers of logs do not keep a node from its other work"""


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    params: dict[str, Any]


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request, or an AWS error."""

    result: dict[str, Any] = {}
    code: str = ""
    message: str = ""
    status: int = 400

    def error(self) -> AwsError | None:
        return AwsError(self.code, self.message, self.status) if self.code else None


def log_route(context: LogContext) -> Route:
    """Only members of the cluster reach the path."""
    threads = Threads(READERS, "logs")

    async def answer(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await request.body(), type=NodeRequest)
        except ValueError as error:
            return Response(str(error), 400)
        found = await threads.run(lambda: answer_request(context, asked))
        return Response(msgspec.json.encode(found), media_type="application/json")

    return Route("/logs", answer, methods=["POST"])


def answer_request(context: LogContext, request: NodeRequest) -> NodeAnswer:
    """Blocks."""
    act = _ANSWERS.get(request.kind)
    if act is None:
        return NodeAnswer(code="UnknownOperationException", message=request.kind)
    try:
        return NodeAnswer(result=act(context, request.params))
    except AwsError as error:
        return NodeAnswer(code=error.code, message=error.message, status=error.status or 400)


def _streams(context: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    entries, has_more = list_streams(context, params)
    return {"entries": entries, "has_more": has_more}


def _find(context: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    """Says when the named stream began here. Raises AwsError."""
    stream = find_stream(find_group(context, params), params["logStreamName"])
    log = open_log(stream.path)
    return {"created_ms": 0 if log is None else log.created_ms}


def _filter(context: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    return {
        "known": known_streams(context, params),
        "answer": filter_known_streams(context, params),
    }


def _tail(context: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    request = msgspec.convert(params, TailRequest)
    page = read_tail(Home(context.settings.home), request, context.clock.now())
    found: dict[str, Any] = msgspec.to_builtins(page)
    return found


_ANSWERS: dict[str, Callable[[LogContext, dict[str, Any]], dict[str, Any]]] = {
    "groups": describe_log_groups,
    "streams": _streams,
    "find": _find,
    "events": get_log_events,
    "filter": _filter,
    "tail": _tail,
}
