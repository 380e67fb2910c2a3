"""The agent's HTTP routes for training jobs' attempts."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.agent.answers import answer_json, answer_list, read_body
from sagehen.agent.jobs.jobs import Jobs
from sagehen.agent.messages import Interrupted, InterruptRequest
from sagehen.domain.jobs import JobSpec, StopRequest
from sagehen.errors import Invalid

__all__ = ["job_routes"]


def job_routes(jobs: Jobs) -> list[Route]:
    """`/jobs`, and what is below it."""
    routes = _Routes(jobs)
    return [
        Route("/jobs", routes.list, methods=["GET"]),
        Route("/jobs/interrupt", routes.interrupt, methods=["POST"]),
        Route("/jobs/{id}", routes.put, methods=["PUT"]),
        Route("/jobs/{id}", routes.delete, methods=["DELETE"]),
        Route("/jobs/{id}/stop", routes.stop, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def list(self, request: Request) -> Response:
        return await answer_list(request, self._jobs.list, self._jobs.wait_for_change)

    async def interrupt(self, request: Request) -> Response:
        wanted = await read_body(request, InterruptRequest)
        return answer_json(Interrupted(attempt_ids=self._jobs.interrupt(wanted.jobs)), 202)

    async def put(self, request: Request) -> Response:
        spec = await read_body(request, JobSpec)
        if spec.attempt_id != request.path_params["id"]:
            raise Invalid("The path and the body name different attempts.")
        self._jobs.put(spec)
        return Response(status_code=202)

    async def stop(self, request: Request) -> Response:
        wanted = await read_body(request, StopRequest)
        self._jobs.stop(request.path_params["id"], wanted)
        return Response(status_code=202)

    async def delete(self, request: Request) -> Response:
        self._jobs.delete(request.path_params["id"])
        return Response(status_code=202)
