"""Control's way to its Ray process."""

import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.nodes import Resources
from sagehen.placement.ray_app import RayClient, create_ray_app
from sagehen.placement.ray_messages import RayNode, RayOrders, RayReservation
from support.agents import served

NODE = RayNode(ray_id="r1", host="10.0.0.2", resources=Resources(cpus=4), addresses=b"{}")


class Ray:
    own_id = "r1"

    def __init__(self):
        self.calls = []

    def nodes(self):
        return [NODE]

    def start_agent(self, ray_id, start):
        self.calls.append(("start", ray_id, start))

    def stop_agent(self, ray_id):
        self.calls.append(("stop", ray_id))

    def reserve(self, wanted):
        self.calls.append(("reserve", wanted))


async def test_nodes_and_orders_pass(short_path):
    ray, client = Ray(), RayClient(short_path / "ray.sock")
    with pytest.raises(Unavailable):
        await client.nodes()
    reservation = RayReservation(key="i-1", resources=Resources(gpus=0.5))
    async with served(create_ray_app(ray), short_path / "ray.sock"):
        listed = await client.nodes()
        assert (listed.own_id, listed.nodes) == ("r1", (NODE,))
        await client.order(RayOrders(start_agents={"r2": b"\x00\xff"}, stop_agents=("r3",)))
        assert ray.calls == [("stop", "r3"), ("start", "r2", b"\x00\xff")]
        await client.order(RayOrders(reservations=(reservation,)))
        assert ray.calls[-1] == ("reserve", (reservation,))
        await client.order(RayOrders(reservations=()))
        assert ray.calls[-1] == ("reserve", ())
