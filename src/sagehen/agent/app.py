"""The agent's HTTP API, for control and the gateways of this machine."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from sagehen.agent.agent import Agent
from sagehen.agent.changes import ListHistory
from sagehen.agent.control_lease import NoControl
from sagehen.agent.errors import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.jobs.jobs import JobAttempts
from sagehen.agent.messages import (
    ErrorMessage,
    InstanceList,
    JobSample,
    LoadRequest,
    TouchRequest,
    WarmRequest,
)
from sagehen.base.concurrency import first_of
from sagehen.base.errors import (
    ArtifactError,
    ArtifactMissing,
    ArtifactRejected,
    Conflict,
    Invalid,
    LimitExceeded,
    NotFound,
    SagehenError,
    Unavailable,
)
from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.job_specs import JobSpec, StopRequest

__all__ = [
    "answer_error",
    "answer_json",
    "answer_list",
    "create_app",
    "disconnected",
    "job_routes",
    "read_body",
]

MAX_BODY_BYTES = 2**20

_T = TypeVar("_T")


async def read_body(request: Request, kind: type[_T]) -> _T:
    """Raises Invalid."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise Invalid(f"The body is larger than {MAX_BODY_BYTES} bytes.")
    try:
        return msgspec.json.decode(body, type=kind)
    except ValueError as error:
        raise Invalid(f"The body is not valid: {error}") from error


def answer_json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def answer_list(
    request: Request,
    list_all: Callable[[], object],
    wait: Callable[[int, float], Coroutine[Any, Any, object]],
) -> Response:
    """Answers a list; with `since`, after a long poll of `wait_seconds`."""
    since = request.query_params.get("since")
    if since is None:
        return answer_json(list_all())
    try:
        seconds = float(request.query_params.get("wait_seconds", "0"))
        version = int(since)
    except ValueError as error:
        raise Invalid(f"A query parameter is not a number: {error}") from error
    return await _unless_disconnected(request, wait(version, seconds))


async def _unless_disconnected(request: Request, wait: Coroutine[Any, Any, object]) -> Response:
    """A stopping server waits for its handlers: cancel those of disconnected clients."""
    answer, _ = await first_of(wait, disconnected(request.receive))
    return Response(status_code=204) if answer is None else answer_json(answer.result())


async def disconnected(receive: Receive) -> None:
    """Returns once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def job_routes(
    jobs: JobAttempts, samples: Callable[[], Awaitable[Sequence[JobSample]]] | None = None
) -> list[Route]:
    """`samples` are those of `jobs` by default."""
    routes = _JobRoutes(jobs, samples or jobs.samples)
    return [
        Route("/jobs", routes.list, methods=["GET"]),
        Route("/jobs/metrics", routes.metrics, methods=["GET"]),
        Route("/jobs/{id}", routes.put, methods=["PUT"]),
        Route("/jobs/{id}", routes.delete, methods=["DELETE"]),
        Route("/jobs/{id}/stop", routes.stop, methods=["POST"]),
    ]


class _JobRoutes:
    def __init__(
        self, jobs: JobAttempts, samples: Callable[[], Awaitable[Sequence[JobSample]]]
    ) -> None:
        self._jobs = jobs
        self._samples = samples

    async def list(self, request: Request) -> Response:
        return await answer_list(request, self._jobs.list, self._jobs.wait_for_change)

    async def metrics(self, request: Request) -> Response:
        return answer_json(await self._samples())

    async def put(self, request: Request) -> Response:
        spec = await read_body(request, JobSpec)
        if spec.attempt_id != request.path_params["id"]:
            raise Invalid("The path and the body name different attempts.")
        self._jobs.put(spec)
        return Response(status_code=202)

    async def stop(self, request: Request) -> Response:
        stop = await read_body(request, StopRequest)
        self._jobs.stop(request.path_params["id"], stop)
        return Response(status_code=202)

    async def delete(self, request: Request) -> Response:
        self._jobs.delete(request.path_params["id"])
        return Response(status_code=202)


def create_app(
    agent: Agent, missing_walls: Sequence[str] = (), more: Sequence[Route] = ()
) -> Starlette:
    """Args:
    missing_walls: what does not separate the containers from their machine, in words.
    more: routes of a cluster's node.
    """
    routes = _Routes(agent, missing_walls)
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
            *job_routes(agent.jobs, agent.job_samples),
            Route("/warm-images", routes.put_warm_images, methods=["PUT"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/problems", routes.problems, methods=["GET"]),
            Route("/gpus", routes.list_gpus, methods=["GET"]),
            Route("/walls/missing", routes.missing_walls, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
            *more,
        ],
        exception_handlers={SagehenError: answer_error},
    )


class _Routes:
    def __init__(self, agent: Agent, missing_walls: Sequence[str]) -> None:
        self._agent = agent
        self._history = ListHistory()
        self._missing_walls = missing_walls

    async def list_instances(self, request: Request) -> Response:
        """With `changes=1` and `since`, answers what has changed, if that version is known."""
        agent, history = self._agent, self._history
        tells_changes = request.query_params.get("changes") == "1"

        async def wait(since: int, seconds: float) -> InstanceList:
            listed = await agent.wait_for_change(since, seconds)
            return history.answer(since if tells_changes else None, listed)

        return await answer_list(
            request, lambda: history.answer(None, agent.list_instances()), wait
        )

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
        load = await read_body(request, LoadRequest)
        ids = request.path_params
        return answer_json(
            await self._agent.load_model(
                ids["id"],
                load.target_model,
                load.wait_seconds,
                ids.get("hostname"),
                load.short_of_memory,
            )
        )

    async def touch_models(self, request: Request) -> Response:
        touch = await read_body(request, TouchRequest)
        ids = request.path_params
        self._agent.touch_models(
            ids["id"], touch.model_names, touch.given_back, ids.get("hostname")
        )
        return Response(status_code=204)

    async def put_warm_images(self, request: Request) -> Response:
        self._agent.keep_warm((await read_body(request, WarmRequest)).images)
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        return answer_json(await self._agent.samples())

    async def problems(self, request: Request) -> Response:
        return answer_json(await self._agent.problems())

    async def list_gpus(self, request: Request) -> Response:
        return answer_json(self._agent.list_gpus())

    async def missing_walls(self, request: Request) -> Response:
        return answer_json(self._missing_walls)

    async def health(self, request: Request) -> Response:
        return Response(status_code=200)


_STATUSES: tuple[tuple[type[SagehenError], int, str], ...] = (
    (ModelNotReady, 429, "ModelNotReadyException"),
    (NoRoom, 507, "InsufficientStorage"),
    (LimitExceeded, 507, "InsufficientStorage"),
    (ModelRefused, 424, "ModelError"),
    (Invalid, 400, "ValidationError"),
    (NoControl, 403, "AccessDenied"),
    (NotFound, 404, "NotFound"),
    (Conflict, 409, "Conflict"),
    (ArtifactMissing, 400, "ValidationError"),
    (ArtifactRejected, 400, "ValidationError"),
    (ArtifactError, 503, "ServiceUnavailable"),
    (Unavailable, 503, "ServiceUnavailable"),
)
"""first match; other errors are internal"""


async def answer_error(request: Request, error: Exception) -> Response:
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return answer_json(ErrorMessage(code=code, message=str(error)), status)
    return answer_json(ErrorMessage(code="InternalFailure", message=str(error)), 500)
