"""Routes requests: handles invocations, relays all others to control."""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from sagehen.gateway.admission.errors import RuntimeRefusal
from sagehen.gateway.admission.params import read_target
from sagehen.gateway.client.connection import HEALTH
from sagehen.gateway.control_proxy import ControlProxy
from sagehen.gateway.control_unavailable import ControlUnavailable
from sagehen.gateway.invocation.context import InvocationContext
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.gateway.invocation.streamed import StreamedInvocation
from sagehen.gateway.leader_proxy import Leader, LeaderProxy
from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.pool import Pool
from sagehen.wire.errors import AwsError

__all__ = ["ControlProxy", "RequestDispatcher"]

INTERNAL = b"/_sagehen/internal"
"""calls between our processes, closed to clients"""

_STARTING = (
    "This gateway has just started, and does not know yet which endpoints there are. Try again in "
    "a moment."
)


class RequestDispatcher:
    """Chooses each request's handler; all but invocations go to `control`.

    Args:
        is_ready: whether this gateway can serve endpoints; else it is not healthy, whatever control
            says. Load balancers send it nothing then.
    """

    def __init__(
        self,
        context: InvocationContext,
        control: Pool,
        leader: Leader,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._context = context
        self._control = control
        self._leader = leader
        self._is_ready = is_ready

    def __call__(self, exchange: Exchange) -> Handler:
        target = read_target(exchange.target)
        if target.endpoint and exchange.method == b"POST":
            # Objects of a bucket `endpoints` may have such paths; S3 posts with a query.
            if target.action == "invocations" and "upload" not in target.query:
                if self._leader.pool is not None:
                    return self._to_leader(exchange, Invocation)
                return Invocation(exchange, self._context)
            if target.action == "invocations-response-stream" and "upload" not in target.query:
                if self._leader.pool is not None:
                    return self._to_leader(exchange, StreamedInvocation)
                return StreamedInvocation(exchange, self._context)
        # Decoded, as control decodes paths.
        if unquote_to_bytes(exchange.target).startswith(INTERNAL):
            return RuntimeRefusal(exchange, AwsError("NotFound", "There is nothing here.", 404))
        if exchange.target.partition(b"?")[0] == HEALTH and not self._is_ready():
            return ControlUnavailable(exchange, _STARTING)
        return ControlProxy(exchange, self._control)

    def _to_leader(self, exchange: Exchange, here: type[Invocation]) -> Handler:
        pool = self._leader.pool_for(exchange)
        return here(exchange, self._context) if pool is None else LeaderProxy(exchange, pool)
