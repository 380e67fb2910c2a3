"""The Ray process's HTTP API on a Unix socket, and control's client of it.

Ray has a process of its own: a driver ends when Ray's head has been away for a minute, and control
must not.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.base.errors import Unavailable
from sagehen.http1.call import call_once
from sagehen.placement.ray_messages import RayNode, RayNodeList, RayOrders, RayReservation

__all__ = ["RayClient", "create_ray_app"]

TIMEOUT_SECONDS = 5.0


class Ray(Protocol):
    """See RayNodes."""

    own_id: str

    def nodes(self) -> list[RayNode]: ...
    def start_agent(self, ray_id: str, start: bytes) -> None: ...
    def stop_agent(self, ray_id: str) -> None: ...
    def reserve(self, wanted: "tuple[RayReservation, ...]") -> None: ...


def create_ray_app(nodes: Ray) -> Starlette:
    one_thread = ThreadPoolExecutor(1, "ray")

    def answer_nodes() -> bytes:
        found = RayNodeList(own_id=nodes.own_id, nodes=tuple(nodes.nodes()))
        return msgspec.json.encode(found)

    def carry_out(orders: RayOrders) -> None:
        for ray_id in orders.stop_agents:
            nodes.stop_agent(ray_id)
        for ray_id, start in orders.start_agents.items():
            nodes.start_agent(ray_id, start)
        if orders.reservations is not None:
            nodes.reserve(orders.reservations)

    async def list_nodes(request: Request) -> Response:
        found = await asyncio.get_running_loop().run_in_executor(one_thread, answer_nodes)
        return Response(found, media_type="application/json")

    async def take_orders(request: Request) -> Response:
        orders = msgspec.json.decode(await request.body(), type=RayOrders)
        await asyncio.get_running_loop().run_in_executor(one_thread, carry_out, orders)
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route("/nodes", list_nodes, methods=["GET"]),
            Route("/orders", take_orders, methods=["PUT"]),
        ]
    )


class RayClient:
    """Every method raises Unavailable while Ray does not answer."""

    def __init__(self, socket: Path) -> None:
        self._address = f"unix:{socket}"

    async def nodes(self) -> RayNodeList:
        body = await self._call("GET", "/nodes")
        return msgspec.json.decode(body, type=RayNodeList)

    async def order(self, orders: RayOrders) -> None:
        await self._call("PUT", "/orders", msgspec.json.encode(orders))

    async def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        answer = await call_once(self._address, method, path, body, timeout_seconds=TIMEOUT_SECONDS)
        if answer.status >= 300:
            raise Unavailable(f"Ray cannot be used now: {answer.text[:300]}")
        return answer.body
