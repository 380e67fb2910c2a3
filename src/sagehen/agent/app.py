"""The agent's HTTP API, for control and the gateways of this machine."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.agent.agent import Agent
from sagehen.agent.faults import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.messages import Failure, LoadRequest, TouchRequest
from sagehen.domain.containers import InstanceSpec
from sagehen.errors import (
    ArtifactError,
    ArtifactMissing,
    ArtifactRejected,
    Invalid,
    LimitExceeded,
    NotFound,
    SagehenError,
    Unavailable,
)

__all__ = ["create_app"]

MOST_BODY_BYTES = 2**20

_T = TypeVar("_T")


def create_app(agent: Agent) -> Starlette:
    """An ASGI application over a started agent."""
    routes = _Routes(agent)
    return Starlette(
        routes=[
            Route("/instances", routes.list_instances, methods=["GET"]),
            Route("/instances/{id}", routes.put_instance, methods=["PUT"]),
            Route("/instances/{id}", routes.delete_instance, methods=["DELETE"]),
            Route("/instances/{id}/models", routes.load_model, methods=["POST"]),
            Route("/instances/{id}/models/touch", routes.touch_models, methods=["POST"]),
            Route(
                "/instances/{id}/containers/{hostname}/models",
                routes.load_model,
                methods=["POST"],
            ),
            Route(
                "/instances/{id}/containers/{hostname}/models/touch",
                routes.touch_models,
                methods=["POST"],
            ),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
        ],
        exception_handlers={SagehenError: _answer_error},
    )


class _Routes:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def list_instances(self, request: Request) -> Response:
        since = request.query_params.get("since")
        if since is None:
            return _json(self._agent.list_instances())
        try:
            wait = float(request.query_params.get("wait_seconds", "0"))
            version = int(since)
        except ValueError as error:
            raise Invalid(f"A query parameter is not a number: {error}") from error
        return await _unless_disconnected(request, self._wait(version, wait))

    async def _wait(self, version: int, seconds: float) -> Response:
        return _json(await self._agent.wait_for_change(version, seconds))

    async def put_instance(self, request: Request) -> Response:
        spec = await _read(request, InstanceSpec)
        if spec.instance_id != request.path_params["id"]:
            raise Invalid("The path and the body name different instances.")
        await self._agent.put(spec)
        return Response(status_code=202)

    async def delete_instance(self, request: Request) -> Response:
        self._agent.delete(request.path_params["id"])
        return Response(status_code=202)

    async def load_model(self, request: Request) -> Response:
        wanted = await _read(request, LoadRequest)
        place = request.path_params
        return _json(
            await self._agent.load_model(
                place["id"],
                wanted.target_model,
                wanted.wait_seconds,
                place.get("hostname"),
                wanted.short_of_memory,
            )
        )

    async def touch_models(self, request: Request) -> Response:
        touched = await _read(request, TouchRequest)
        place = request.path_params
        self._agent.touch_models(
            place["id"], touched.model_names, touched.given_back, place.get("hostname")
        )
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        return _json(await self._agent.samples())

    async def health(self, request: Request) -> Response:
        return Response(status_code=200)


async def _unless_disconnected(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """The answer, given up when nobody waits for it: a stopping server waits for its handlers."""
    answering = asyncio.create_task(answer)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else Response(status_code=204)
    finally:
        answering.cancel()
        watching.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read(request: Request, kind: type[_T]) -> _T:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise Invalid(f"The body is larger than {MOST_BODY_BYTES} bytes.")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Invalid(f"The body is not what is expected: {error}") from error


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


_STATUSES: tuple[tuple[type[SagehenError], int, str], ...] = (
    (ModelNotReady, 429, "ModelNotReadyException"),
    (NoRoom, 507, "InsufficientStorage"),
    (LimitExceeded, 507, "InsufficientStorage"),
    (ModelRefused, 424, "ModelError"),
    (Invalid, 400, "ValidationError"),
    (NotFound, 404, "NotFound"),
    (ArtifactMissing, 400, "ValidationError"),
    (ArtifactRejected, 400, "ValidationError"),
    (ArtifactError, 503, "ServiceUnavailable"),
    (Unavailable, 503, "ServiceUnavailable"),
)
"""The first that matches; what is none of them is our own failing."""


async def _answer_error(request: Request, error: Exception) -> Response:
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return _json(Failure(code=code, message=str(error)), status)
    return _json(Failure(code="InternalFailure", message=str(error)), 500)
