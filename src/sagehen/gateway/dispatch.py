"""Who answers a request: an invocation here, everything else by control."""

from urllib.parse import unquote_to_bytes

from sagehen.gateway.exchange import Exchange, Handler
from sagehen.gateway.invocation import Invocation
from sagehen.gateway.invoker import Invoker
from sagehen.gateway.pool import Pool
from sagehen.gateway.refusal import Refusal
from sagehen.gateway.streamed_invocation import StreamedInvocation
from sagehen.gateway.target import read_target
from sagehen.gateway.tunnel import Tunnel
from sagehen.wire.faults import AwsError

__all__ = ["Dispatcher"]

INTERNAL = b"/_sagehen/internal"
"""What our processes say to one another: not for the outside."""


class Dispatcher:
    """`control` leads to the process that answers whatever is not an invocation."""

    def __init__(self, invoker: Invoker, control: Pool) -> None:
        self._invoker = invoker
        self._control = control

    def __call__(self, exchange: Exchange) -> Handler:
        target = read_target(exchange.target)
        if target.endpoint and exchange.method == b"POST":
            # An object of a bucket called `endpoints` may have such a path; S3 posts with a query.
            if target.action == "invocations" and "upload" not in target.query:
                return Invocation(exchange, self._invoker)
            if target.action == "invocations-response-stream" and "upload" not in target.query:
                return StreamedInvocation(exchange, self._invoker)
        # Control decodes paths, so what is compared must be decoded too.
        if unquote_to_bytes(exchange.target).startswith(INTERNAL):
            return Refusal(exchange, AwsError("NotFound", "There is nothing here.", 404))
        return Tunnel(exchange, self._control)
