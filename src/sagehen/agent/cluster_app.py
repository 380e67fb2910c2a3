"""The agent's HTTP API for the controls of a cluster, which reach it over TLS.

It is the API of the Unix socket, and more: the node, control's lease and the route table. Each
request names the epoch of the control that sends it; those of earlier leaders are refused.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sagehen.agent.app import answer_error, answer_json, read_body
from sagehen.agent.control_lease import ControlLease, require_control
from sagehen.agent.neighbours.holdings import HeldModels
from sagehen.base.cluster_certificates import PEER_CERTIFICATE
from sagehen.base.errors import Invalid, SagehenError
from sagehen.frame.nodes import (
    EPOCH_HEADER,
    LeaseRequest,
    NodeDescription,
    NodeRequests,
    RunningSpecs,
)
from sagehen.frame.own_paths.routes import whole_body
from sagehen.frame.routes import RouteChanges, RouteTable, TableText

__all__ = ["RouteTableFile", "create_cluster_app"]

MAX_ROUTES_BYTES = 256 * 2**20


class RouteTableFile:
    """The node's route table, as control last sent it. A late request does not undo a newer one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest = (0, -1)
        """epoch and version"""
        self._text: TableText | None = None

    def write(self, epoch: int, body: bytes) -> None:
        """Blocks. Raises Invalid."""
        try:
            version = msgspec.json.decode(body, type=RouteTable).version
        except ValueError as error:
            raise Invalid(f"The body is no route table: {error}") from error
        if (epoch, version) > self._newest:
            self._replace(epoch, version, TableText(body))

    def change(self, epoch: int, body: bytes) -> bool:
        """Returns False where the changes do not follow the newest table: control must send the
        whole one. Blocks. Raises Invalid."""
        try:
            changes = msgspec.json.decode(body, type=RouteChanges)
        except ValueError as error:
            raise Invalid(f"The body has no changes of a route table: {error}") from error
        if (epoch, changes.version) <= self._newest:
            return True
        if self._text is None or (epoch, changes.base) != self._newest:
            return False
        self._replace(epoch, changes.version, self._text.after(body))
        return True

    def _replace(self, epoch: int, version: int, text: TableText) -> None:
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_bytes(text.content)
        draft.replace(self._path)
        self._newest, self._text = (epoch, version), text


def create_cluster_app(
    agent_app: ASGIApp,
    lease: ControlLease,
    describe: Callable[[], Awaitable[NodeDescription]],
    specs: Callable[[], RunningSpecs],
    routes_file: Path,
    models: HeldModels,
    count_requests: Callable[[], NodeRequests] = NodeRequests,
    of_control: Sequence[Route] = (),
    for_nodes: Sequence[Route] = (),
) -> ASGIApp:
    """Args:
    agent_app: answers all other paths.
    count_requests: counts the invocations on the node's instances.
    routes_file: which the node's gateways follow.
    models: what placement prefers this node for.
    for_nodes: what other nodes ask, without an epoch; all else needs a control's certificate.
    """
    routes = _Routes(lease, describe, specs, RouteTableFile(routes_file), models, count_requests)
    app = Starlette(
        routes=[
            Route("/node", routes.describe_node, methods=["GET"]),
            Route("/specs", routes.list_specs, methods=["GET"]),
            Route("/lease", routes.renew_lease, methods=["POST"]),
            Route("/routes", routes.put_routes, methods=["PUT"]),
            Route("/routes", routes.change_routes, methods=["PATCH"]),
            Route("/models", routes.list_models, methods=["GET"]),
            *of_control,
            Mount("/", app=agent_app),
        ],
        exception_handlers={SagehenError: answer_error},
    )
    return Starlette(
        routes=[*for_nodes, Mount("/", app=_EpochCheck(app, lease))],
        exception_handlers={SagehenError: answer_error},
    )


class _Routes:
    def __init__(
        self,
        lease: ControlLease,
        describe: Callable[[], Awaitable[NodeDescription]],
        specs: Callable[[], RunningSpecs],
        table: RouteTableFile,
        models: HeldModels,
        count_requests: Callable[[], NodeRequests],
    ) -> None:
        self._lease = lease
        self._describe = describe
        self._specs = specs
        self._table = table
        self._models = models
        self._count_requests = count_requests

    async def describe_node(self, request: Request) -> Response:
        return answer_json(await self._describe())

    async def list_specs(self, request: Request) -> Response:
        return answer_json(self._specs())

    async def renew_lease(self, request: Request) -> Response:
        answer = self._lease.renew(await read_body(request, LeaseRequest))
        known, requests = self._models.version, self._count_requests()
        return answer_json(replace(answer, models_version=known, requests=requests))

    async def list_models(self, request: Request) -> Response:
        return answer_json(self._models.list())

    async def put_routes(self, request: Request) -> Response:
        body = await whole_body(request, MAX_ROUTES_BYTES)
        # In the event loop: two tables in two threads could be written in the wrong order.
        self._table.write(epoch_of(request.scope), body)
        return Response(status_code=204)

    async def change_routes(self, request: Request) -> Response:
        """Answers 409 where the whole table is needed."""
        body = await whole_body(request, MAX_ROUTES_BYTES)
        has_changed = self._table.change(epoch_of(request.scope), body)
        return Response(status_code=204 if has_changed else 409)


class _EpochCheck:
    """Refuses requests of others than controls, and of controls that no longer lead."""

    def __init__(self, app: ASGIApp, lease: ControlLease) -> None:
        self._app = app
        self._lease = lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            require_control(scope["state"][PEER_CERTIFICATE])
            self._lease.check_epoch(epoch_of(scope))
        except SagehenError as error:
            answer = await answer_error(Request(scope), error)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def epoch_of(scope: Scope) -> int:
    """Raises Invalid where the request does not name control's epoch."""
    value = dict(scope["headers"]).get(EPOCH_HEADER.encode(), b"")
    if not value.isdigit() or len(value) > 18:
        raise Invalid(f"The header {EPOCH_HEADER} must be a number, but it is {value[:40]!r}.")
    return int(value)
