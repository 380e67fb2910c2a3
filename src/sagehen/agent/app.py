"""The agent's HTTP API, for control and the gateways of this machine."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.agent.agent import Agent
from sagehen.agent.answers import answer_json, answer_list, read_body
from sagehen.agent.faults import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.jobs.routes import job_routes
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
            *job_routes(agent.jobs),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
        ],
        exception_handlers={SagehenError: _answer_error},
    )


class _Routes:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def list_instances(self, request: Request) -> Response:
        agent = self._agent
        return await answer_list(request, agent.list_instances, agent.wait_for_change)

    async def put_instance(self, request: Request) -> Response:
        spec = await read_body(request, InstanceSpec)
        if spec.instance_id != request.path_params["id"]:
            raise Invalid("The path and the body name different instances.")
        await self._agent.put(spec)
        return Response(status_code=202)

    async def delete_instance(self, request: Request) -> Response:
        self._agent.delete(request.path_params["id"])
        return Response(status_code=202)

    async def load_model(self, request: Request) -> Response:
        wanted = await read_body(request, LoadRequest)
        place = request.path_params
        return answer_json(
            await self._agent.load_model(
                place["id"],
                wanted.target_model,
                wanted.wait_seconds,
                place.get("hostname"),
                wanted.short_of_memory,
            )
        )

    async def touch_models(self, request: Request) -> Response:
        touched = await read_body(request, TouchRequest)
        place = request.path_params
        self._agent.touch_models(
            place["id"], touched.model_names, touched.given_back, place.get("hostname")
        )
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        return answer_json(await self._agent.samples())

    async def health(self, request: Request) -> Response:
        return Response(status_code=200)


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
            return answer_json(Failure(code=code, message=str(error)), status)
    return answer_json(Failure(code="InternalFailure", message=str(error)), 500)
