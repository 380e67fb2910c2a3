"""What control has Ray do."""

import pickle

import msgspec
import pytest

from sagehen.app.cluster import NodeAddresses, prepare_authority
from sagehen.app.roles.common import Start
from sagehen.app.roles.control_ray import AWAY_SECONDS, RaySource
from sagehen.base.credentials import make_credentials, make_token
from sagehen.base.errors import Unavailable
from sagehen.base.home import prepare_home
from sagehen.frame.nodes import Resources
from sagehen.placement.ray_messages import RayNode, RayNodeList, RayReservation
from support.clock import SteppedClock
from support.node_agents import LARGE, node_record
from support.state import settings_of

NEEDED = Resources(cpus=2, memory_bytes=2**33)


class Ray:
    """Ray's process: the nodes that it lists, and the orders it got."""

    def __init__(self):
        self.own_id = "own"
        self.listed = []
        self.orders = []
        self.is_away = False

    async def nodes(self):
        if self.is_away:
            raise Unavailable("Ray is away")
        return RayNodeList(own_id=self.own_id, nodes=tuple(self.listed))

    async def order(self, orders):
        self.orders.append(orders)

    def has(self, ray_id, host="10.0.0.2", *, node_id=""):
        self.listed = [each for each in self.listed if each.ray_id != ray_id]
        addresses = NodeAddresses(node_id=node_id, agent="h:1", peer="h:2", gateway="h:3")
        self.listed.append(
            RayNode(
                ray_id=ray_id,
                host=host,
                resources=LARGE,
                addresses=msgspec.json.encode(addresses) if node_id else b"",
            )
        )


@pytest.fixture
def ray():
    ray = Ray()
    ray.has("own", "10.0.0.1")
    return ray


@pytest.fixture
def clock():
    return SteppedClock(now=1e6)


@pytest.fixture
def wanted():
    return []


@pytest.fixture
def source(short_path, ray, clock, wanted):
    home = prepare_home(short_path / "home")
    prepare_authority(home, None)
    make_credentials(home.credentials)
    make_token(home.token)
    start = Start(settings_of(home.path, cluster="auto", port=9000), home, (), 0)
    return RaySource(start, ray, lambda: wanted, clock)


SERVER = node_record("server", has_control=True, ray_id="own")


async def test_a_new_node_gets_an_agent_and_then_a_row(source, ray, clock):
    ray.has("r2", "10.0.0.2")
    assert await source.update([SERVER]) == []
    assert all(not orders.start_agents for orders in ray.orders), "a server may begin there"
    clock.advance(4)
    await source.update([SERVER])
    begin = pickle.loads(ray.orders[-1].start_agents["r2"])
    assert set(ray.orders[-1].start_agents) == {"r2"}
    assert begin.node_id == "node-10-0-0-2"
    values, _ = pickle.loads(begin.settings)
    assert (values["host"], values["port"], values["cluster_token"]) == ("10.0.0.2", 9000, None)
    assert values["database_url"].startswith("sqlite:///")
    ray.has("r2", node_id="node-10-0-0-2")
    (row,) = await source.update([SERVER])
    assert (row.node_id, row.ray_id, row.agent_address) == ("node-10-0-0-2", "r2", "h:1")
    assert await source.update([SERVER, msgspec.structs.replace(row, is_draining=True)]) == []


async def test_a_machine_with_a_server_gets_no_second_agent(source, ray, clock):
    ray.has("r2", node_id="node-10-0-0-2")
    other = node_record("other", has_control=True, ray_id="r2")
    clock.advance(10)
    await source.update([SERVER, other])
    assert ray.orders[-1].start_agents == {}
    assert ray.orders[-1].stop_agents == ("r2",)


async def test_a_server_that_comes_back_with_its_machine_finds_no_agent_there(source, ray, clock):
    """Ray is there first, as a new node."""
    other = node_record("other", has_control=True, ray_id="r2", agent_address="10.0.0.2:7000")
    await source.update([SERVER, other])
    ray.has("r3", "10.0.0.2")
    await source.update([SERVER, other])
    clock.advance(60)
    await source.update([SERVER, other])
    assert not any(orders.start_agents for orders in ray.orders)
    # The server's row is forgotten when it has been away for long.
    await source.update([SERVER])
    assert set(ray.orders[-1].start_agents) == {"r3"}


async def test_what_runs_or_waits_is_reserved_and_repeated_now_and_then(source, ray, clock, wanted):
    wanted += [("i-1", NEEDED, "server"), ("i-2", NEEDED, "")]
    await source.update([SERVER])
    assert ray.orders[-1].reservations == (
        RayReservation(key="i-1", resources=NEEDED, ray_id="own"),
        RayReservation(key="i-2", resources=NEEDED),
    )
    count = len(ray.orders)
    await source.update([SERVER])
    assert len(ray.orders) == count
    wanted.pop()
    await source.update([SERVER])
    assert len(ray.orders[-1].reservations) == 1
    clock.advance(11)
    await source.update([SERVER])
    assert len(ray.orders[-1].reservations) == 1
    assert len(ray.orders) == count + 2


async def test_without_ray_everything_goes_on(source, ray):
    ray.is_away = True
    assert await source.update([SERVER]) == ()
    await source.look()
    assert source.own is None
    ray.is_away = False
    await source.look()
    assert source.own == ray.listed[0]
    assert ray.orders == [], "only the leader gives orders"


async def test_a_ray_that_stays_away_is_a_problem_until_it_answers(source, ray, clock):
    ray.is_away = True
    await source.update([node_record("own")])
    assert source.problems() == [], "it may be starting"
    clock.advance(AWAY_SECONDS)
    await source.update([node_record("own")])
    (problem,) = source.problems()
    assert "ray.log says why" in problem
    assert "RAY_AUTH_MODE" in problem
    ray.is_away = False
    await source.update([node_record("own")])
    assert source.problems() == []


async def test_a_control_that_stands_by_learns_of_its_new_node_in_ray(source, ray):
    """Ray was started anew on its machine: Ray does not know the id that the node had before."""
    await source.look()
    ray.listed.clear()
    ray.own_id = "new"
    ray.has("new", "10.0.0.1")
    await source.look()
    assert source.own == ray.listed[0]
