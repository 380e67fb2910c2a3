"""The paths of an agent for the agents of other nodes: its artifacts, by name, and the directory
entries that it keeps."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sagehen.agent.app import answer_json, disconnected, read_body
from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.artifacts.tree_stream import tree_stream
from sagehen.agent.neighbours.directory import ArtifactDirectory
from sagehen.agent.neighbours.messages import (
    ArtifactState,
    HeldArtifacts,
    Holders,
    Source,
    SourceRequest,
)
from sagehen.base.concurrency import first_of, in_thread
from sagehen.base.errors import Invalid, NotFound, Unavailable

__all__ = ["holders_route", "neighbour_routes"]

log = logging.getLogger(__name__)

SERVED_AT_ONCE = 4
TURN_SECONDS = 10.0
"""how long a node may wait for its turn; then it asks another"""
STALL_SECONDS = 30.0
"""how long a node may take nothing of what it fetches"""
LONGEST_POLL_SECONDS = 60.0


def neighbour_routes(
    artifacts: ArtifactCache,
    directory: ArtifactDirectory,
    waiting: Callable[[str], ArtifactState],
) -> list[Route]:
    """`waiting`: tells of an artifact that comes from another node."""
    routes = _Routes(artifacts, directory, waiting)
    return [
        Route("/artifacts/{name}", routes.describe, methods=["GET"]),
        Route("/artifacts/{name}/content", routes.read, methods=["GET"]),
        Route("/artifact-directory", routes.list_holders, methods=["GET"]),
        Route("/artifact-directory/sources", routes.choose_source, methods=["POST"]),
        Route("/artifact-directory/holders", routes.note_holders, methods=["POST"]),
    ]


def holders_route(find: Callable[[str], Awaitable[tuple[str, ...]]]) -> Route:
    """For the gateways of this machine, which have no part in the directory."""

    async def list_holders(request: Request) -> Response:
        return answer_json(Holders(nodes=await find(request.query_params.get("url", ""))))

    return Route("/artifact-directory", list_holders, methods=["GET"])


class _Routes:
    def __init__(
        self,
        artifacts: ArtifactCache,
        directory: ArtifactDirectory,
        waiting: Callable[[str], ArtifactState],
    ) -> None:
        self._artifacts = artifacts
        self._directory = directory
        self._waiting = waiting
        self._turns = asyncio.Semaphore(SERVED_AT_ONCE)

    async def describe(self, request: Request) -> Response:
        """Answers once the artifact is here, or after `wait_seconds` if it is being fetched."""
        name = request.path_params["name"]
        try:
            seconds = float(request.query_params.get("wait_seconds", "0"))
        except ValueError as error:
            raise Invalid(f"wait_seconds is not a number: {error}") from error
        waiting = self._artifacts.wait_for_fetch(name, min(seconds, LONGEST_POLL_SECONDS))
        await first_of(waiting, disconnected(request.receive))
        origin = self._artifacts.find_origin(name)
        if origin is not None:
            return answer_json(ArtifactState(digest=origin.digest))
        if self._artifacts.is_fetching(name):
            state = self._waiting(name)
            if not state.waits_for:
                state = ArtifactState(received_bytes=self._artifacts.received_bytes(name))
            return answer_json(state)
        raise NotFound(f"There is no artifact {name}.")

    async def read(self, request: Request) -> Response:
        name = request.path_params["name"]
        artifact = self._artifacts.pin(name)
        if artifact is None:
            raise NotFound(f"There is no artifact {name}.")
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turns.acquire()
        except BaseException as error:
            await self._artifacts.release(artifact)
            if isinstance(error, TimeoutError):
                raise Unavailable(f"{SERVED_AT_ONCE} other nodes fetch artifacts here.") from None
            raise
        return _Content(artifact, self._end_reading)

    async def _end_reading(self, artifact: Artifact) -> None:
        self._turns.release()
        await self._artifacts.release(artifact)

    async def list_holders(self, request: Request) -> Response:
        url = request.query_params.get("url", "")
        return answer_json(Holders(nodes=self._directory.holders(url)))

    async def choose_source(self, request: Request) -> Response:
        asked = await read_body(request, SourceRequest)
        source = self._directory.choose_source(
            asked.url, asked.name, asked.node_id, asked.gone, asked.avoid
        )
        return answer_json(Source(node_id=source))

    async def note_holders(self, request: Request) -> Response:
        held = await read_body(request, HeldArtifacts)
        for url, name in held.artifacts:
            self._directory.note_holder(url, name, held.node_id)
        return Response(status_code=204)


class _Content(Response):
    """The content of a pinned artifact; `end` is called however it ends."""

    def __init__(self, artifact: Artifact, end: Callable[[Artifact], Awaitable[None]]) -> None:
        super().__init__(media_type="application/x-tar")
        del self.headers["content-length"]
        self._artifact = artifact
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = tree_stream(self._artifact.folder)
        try:
            sent, _ = await first_of(self._send_all(pieces, send), disconnected(receive))
            if sent is not None and (error := sent.exception()) is not None:
                about = {"action": "artifact_cut", "artifact": self._artifact.name}
                log.warning("A node did not get all of an artifact: %s", error, extra=about)
        finally:
            await self._end(self._artifact)

    async def _send_all(self, pieces: Iterator[bytes], send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        while piece := await in_thread(lambda: next(pieces, b"")):
            async with asyncio.timeout(STALL_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
