"""`POST /_sagehen/internal/starts`: gateways tell of calls that wait for an instance."""

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.base.errors import Invalid
from sagehen.frame.own_paths.routes import json_answer, whole_body
from sagehen.services.sagemaker.hosting.demand import CallDemand, StartRequests

__all__ = ["start_route"]

LARGEST_MESSAGE_BYTES = 4 * 2**20


def start_route(demand: CallDemand) -> Route:
    """Only this machine's gateways reach the path."""

    async def take(request: Request) -> Response:
        try:
            body = await whole_body(request, LARGEST_MESSAGE_BYTES)
            demand.note_waiting(msgspec.json.decode(body, type=StartRequests))
        except ValueError as error:
            return json_answer({"message": f"This is not a gateway's message: {error}"}, 400)
        except Invalid as error:
            return json_answer({"message": str(error)}, 413)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(status_code=204)

    return Route("/_sagehen/internal/starts", take, methods=["POST"])
