"""Own paths that only the leading control can answer: one that stands by passes them on to it.

    gateway ──► control that stands by ──(TLS)──► door of the leader's machine ──► leading control

A standby's gateways report their calls in this way, and whoever asks a standby for the status or
the metrics gets those of the whole cluster. A control that was passed a request and does not lead
(any more) refuses it: nothing counts as reported that the leader has not read.

The nodes of the cluster are the exception: without a leader, each control shows those it can see.
"""

from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import client_context, server_name
from sagehen.base.errors import Invalid, Unavailable
from sagehen.base.home import Home
from sagehen.frame.own_paths.routes import refusal, whole_body
from sagehen.frame.routes import RouteFileReader
from sagehen.http1.call import LocalAnswer, exchange
from sagehen.http1.pool import Pool, Tls

__all__ = ["PASSED_ON", "LeaderRelay"]

PASSED_ON = "x-sagehen-passed-on"
"""header of a request that another control has passed on"""
OF_LEADER = (
    "/_sagehen/internal/",
    "/_sagehen/jobs/",
    "/_sagehen/metrics",
    "/_sagehen/offline-results",
    "/_sagehen/status",
)
"""beginnings of the paths whose answers are in the leader's memory"""
NODES = "/_sagehen/cluster"
"""answered by the leader, or else by each control: it is needed most while nobody leads"""
METRICS = "/_sagehen/metrics"
REPORT_SECONDS = 1.5
"""less than gateways wait before they repeat a report"""
NODES_SECONDS = 5.0
"""with a control's own answer, less than the command line waits"""
TIMEOUT_SECONDS = 10.0
LARGEST_BODY_BYTES = 16 * 2**20


class LeaderRelay:
    """Args:
    own_node_id: of this machine.
    is_leader: whether this control leads.
    token: opens the own paths of every server of the cluster.
    outage: says why the state cannot be reached now; empty if it can.
    """

    def __init__(
        self,
        home: Home,
        own_node_id: str,
        is_leader: Callable[[], bool],
        token: str,
        clock: Clock,
        outage: Callable[[], str] = lambda: "",
    ) -> None:
        self._own_node_id = own_node_id
        self._is_leader = is_leader
        self._token = token
        self._outage = outage
        self._clock = clock
        self._table = RouteFileReader(home.routes, clock)
        self._context = client_context(home.cluster)
        self._pool: tuple[str, str, Pool] | None = None
        """with the node and the address that it leads to"""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Returns an application in front of `app`, which answers what the leader need not."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"]
            response: Response | None = None
            if not self._is_leader():
                if path == NODES:
                    response = await self._answer_nodes(Request(scope, receive))
                # Without the database nobody leads: each server says so, and of what version it is.
                elif path.startswith(OF_LEADER) and not (path == METRICS and self._outage()):
                    response = await self._answer(Request(scope, receive))
            await (app if response is None else response)(scope, receive, send)

        return answer

    def close(self) -> None:
        if self._pool is not None:
            self._pool[2].abort()

    async def _answer(self, request: Request) -> Response:
        try:
            if PASSED_ON in request.headers:
                raise Unavailable("This control does not lead.")
            body = await whole_body(request, LARGEST_BODY_BYTES)
            is_report = request.url.path.startswith("/_sagehen/internal/")
            seconds = REPORT_SECONDS if is_report else TIMEOUT_SECONDS
            return _response(await self._pass_on(request, body, seconds))
        except Invalid as error:
            return refusal(error)
        except Unavailable as error:
            message = f"The control that leads the cluster cannot be reached now: {error}"
            if outage := self._outage():
                message = f"{outage} (So no control leads the cluster; endpoints go on serving.)"
            return refusal(Unavailable(message))
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)

    async def _answer_nodes(self, request: Request) -> Response | None:
        """Returns None where the leader does not answer."""
        if PASSED_ON in request.headers:
            return refusal(Unavailable("This control does not lead."))
        try:
            answer = await self._pass_on(request, b"", NODES_SECONDS)
        except Unavailable:
            return None
        does_lead = answer.status != HTTPStatus.SERVICE_UNAVAILABLE
        return _response(answer) if does_lead else None

    async def _pass_on(self, request: Request, body: bytes, seconds: float) -> LocalAnswer:
        """Raises Unavailable."""
        query = request.url.query
        path = request.scope.get("raw_path", b"").decode("latin-1") or request.url.path
        target = path.partition("?")[0] + (f"?{query}" if query else "")
        lines = [
            f"{request.method} {target} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self._token}",
            f"{PASSED_ON}: 1",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        name = f"{request.method} {target}"
        bodiless = request.method == "HEAD"
        return await exchange(self._pool_of_leader(), [head, body], name, seconds, bodiless)

    def _pool_of_leader(self) -> Pool:
        """Raises Unavailable while the leader has not sent its address."""
        self._table.refresh_if_old()
        for node_id, node in self._table.table.nodes.items():
            if node.control_address and node_id != self._own_node_id:
                return self._pool_of(node_id, node.control_address)
        raise Unavailable("No control that leads has sent its address yet.")

    def _pool_of(self, node_id: str, address: str) -> Pool:
        if self._pool is None or self._pool[:2] != (node_id, address):
            self.close()
            tls = Tls(self._context, server_name(node_id))
            self._pool = (node_id, address, Pool(f"tcp:{address}", self._clock, tls=tls))
        pool = self._pool[2]
        pool.close_idle(self._clock.monotonic())
        return pool


def _response(answer: LocalAnswer) -> Response:
    kept = ("content-type", "content-length")  # A HEAD's length is that of a GET.
    headers = {name: answer.headers[name] for name in kept if name in answer.headers}
    return Response(answer.body, answer.status, headers)
