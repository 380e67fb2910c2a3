"""Who answers a request: an invocation here, everything else by control."""

from urllib.parse import unquote_to_bytes

from sagehen.gateway.exchange import Exchange, Handler
from sagehen.gateway.faults import validation_error
from sagehen.gateway.invocation import Invocation
from sagehen.gateway.invoker import Invoker
from sagehen.gateway.pool import Pool
from sagehen.gateway.refusal import Refusal
from sagehen.gateway.streamed_invocation import StreamedInvocation
from sagehen.gateway.tunnel import Tunnel
from sagehen.wire.faults import AwsError

__all__ = ["Dispatcher"]

INTERNAL = b"/_sagehen/internal"
"""What our processes say to one another: not for the outside."""

_NOT_YET = {
    b"async-invocations": "InvokeEndpointAsync",
}


class Dispatcher:
    """`control` leads to the process that answers whatever is not an invocation."""

    def __init__(self, invoker: Invoker, control: Pool) -> None:
        self._invoker = invoker
        self._control = control

    def __call__(self, exchange: Exchange) -> Handler:
        target = exchange.target
        if target.startswith(b"/endpoints/") and exchange.method == b"POST":
            path, _, query = target.partition(b"?")
            _, _, action = path[len(b"/endpoints/") :].partition(b"/")
            # An object of a bucket called `endpoints` may have such a path; S3 posts with a query.
            if action == b"invocations" and b"upload" not in query:
                return Invocation(exchange, self._invoker)
            if action == b"invocations-response-stream" and b"upload" not in query:
                return StreamedInvocation(exchange, self._invoker)
            if action in _NOT_YET:
                message = f"{_NOT_YET[action]} is not implemented by Sagehen yet."
                return Refusal(exchange, validation_error(message))
        # Control decodes paths, so what is compared must be decoded too.
        if unquote_to_bytes(target).startswith(INTERNAL):
            return Refusal(exchange, AwsError("NotFound", "There is nothing here.", 404))
        return Tunnel(exchange, self._control)
