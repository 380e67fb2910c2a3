"""A node's agent behind TLS, asked by the client of a leading control."""

import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from sagehen.agent.app import create_app
from sagehen.agent.client import NodeClient
from sagehen.agent.cluster_app import RouteTableFile, create_cluster_app
from sagehen.agent.control_lease import ControlLease
from sagehen.agent.messages import InstanceList
from sagehen.agent.neighbours.holdings import HeldModels
from sagehen.app.roles.common import serving_tls
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import (
    PEER_CERTIFICATE,
    client_context,
    issue,
    make_authority,
    server_context,
    server_name,
    write_certificate,
)
from sagehen.base.errors import Invalid, NobodyListens, NotFound, Unavailable
from sagehen.frame.nodes import LeaseRequest, NodeDescription, Resources, RunningSpecs
from sagehen.frame.routes import RouteTable, TableText
from sagehen.http1.pool import Tls

DESCRIPTION = NodeDescription(
    node_id="one", run_id="run-1", resources=Resources(cpus=2, memory_bytes=2**30), pids=(1, 2)
)


class FewAnswers:
    """As much of an agent as these tests ask."""

    jobs = SimpleNamespace(samples=None)

    def list_instances(self):
        return InstanceList(version=1, instances=())

    async def wait_for_change(self, since, seconds):
        return self.list_instances()

    def delete(self, instance_id):
        raise NotFound(f"There is no instance {instance_id}.")

    async def job_samples(self):
        return []


async def describe():
    return DESCRIPTION


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Folders of the node `one`, of the control's node `two`, and of a stranger that is called
    `two` elsewhere."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority()
    write_certificate(folder / "one", issue(authority, "one"))
    write_certificate(folder / "two", issue(authority, "two", has_control=True))
    write_certificate(folder / "stranger", issue(make_authority(), "two", has_control=True))
    return folder


@pytest.fixture
def routes_file(tmp_path):
    return tmp_path / "routes.json"


@pytest.fixture
async def address(certificates, tmp_path, routes_file):
    lease = ControlLease("run-1", tmp_path / "epoch", 600, SYSTEM)
    app = create_cluster_app(
        create_app(FewAnswers()), lease, describe, RunningSpecs, routes_file, HeldModels()
    )
    async with listening(app, certificates / "one") as address:
        yield address


@asynccontextmanager
async def listening(app, folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving_tls(listener, server_context(folder), app):
            yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def connect(address, certificates):
    """`connect(epoch)` makes a client; all are closed."""
    made = []

    def make(epoch=1, certificate="two", node_id="one"):
        tls = Tls(client_context(certificates / certificate), server_name(node_id))
        made.append(NodeClient(address, tls, lambda: epoch, SYSTEM))
        return made[-1]

    yield make
    for client in made:
        client.close()


async def test_the_leading_control_uses_the_whole_agent(connect):
    client = connect()
    assert await client.describe() == DESCRIPTION
    assert await client.specs() == RunningSpecs()
    assert (await client.instances()).version == 1
    await client.check_health()
    await client.delete_instance("i-1")
    first = await client.renew_lease(LeaseRequest(seconds=8), 10)
    assert first.run_id == "run-1"
    assert len(client._pool._open) == 1, "one connection carries all requests"


async def test_a_control_of_an_earlier_epoch_is_refused(connect):
    await connect(7).check_health()
    with pytest.raises(Unavailable, match="epoch 7 leads this node; this request is of 6"):
        await connect(6).check_health()
    await connect(7).check_health()


async def test_node_without_control_cannot_set_the_epoch(connect):
    with pytest.raises(Unavailable, match="Only the cluster's controls may ask this of a node"):
        await connect(999_999, certificate="one").check_health()
    await connect(1).check_health()


async def test_members_of_the_cluster_are_served_alone(connect):
    with pytest.raises(Unavailable):
        await connect(certificate="stranger").check_health()
    with pytest.raises(Unavailable):
        await connect(node_id="two").check_health()


async def test_who_names_no_epoch_is_refused(certificates, tmp_path):
    lease = ControlLease("run-1", tmp_path / "epoch", 600, SYSTEM)
    app = create_cluster_app(
        create_app(FewAnswers()), lease, None, None, tmp_path / "routes", HeldModels()
    )
    sent = []

    async def send(message):
        sent.append(message)

    certificate = {"subjectAltName": (("DNS", "two.node.sagehen"), ("DNS", "two.control.sagehen"))}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/health",
        "headers": [],
        "state": {PEER_CERTIFICATE: certificate},
    }
    await app(scope, None, send)
    assert sent[0]["status"] == 400
    assert b"x-sagehen-epoch must be a number" in sent[1]["body"]


async def test_route_tables_arrive_in_order(connect, routes_file):
    def table(version):
        return msgspec.json.encode(RouteTable(routes={}, version=version))

    def version():
        return msgspec.json.decode(routes_file.read_bytes())["version"]

    await connect(1).put_routes(table(5))
    assert version() == 5
    await connect(1).put_routes(table(4))
    assert version() == 5
    await connect(2).put_routes(table(2))
    assert version() == 2, "a new leader counts anew"
    with pytest.raises(Invalid, match="no route table"):
        await connect(2).put_routes(b"[]")
    assert not routes_file.with_name("routes.json.new").exists()


def test_a_route_table_is_replaced_as_a_whole(tmp_path, monkeypatch):
    file = RouteTableFile(tmp_path / "routes.json")
    file.write(1, msgspec.json.encode(RouteTable(routes={}, version=1)))
    inode = (tmp_path / "routes.json").stat().st_ino
    file.write(1, msgspec.json.encode(RouteTable(routes={}, version=2)))
    assert (tmp_path / "routes.json").stat().st_ino != inode


async def test_changes_follow_the_table_that_they_were_made_of(connect, routes_file):
    def text(version, **weights):
        routes = {
            name: {"endpoint_name": name, "variants": [{"name": "v", "weight": w, "instances": []}]}
            for name, w in weights.items()
        }
        return TableText(msgspec.json.encode({"version": version, "routes": routes}))

    def weights():
        table = msgspec.json.decode(routes_file.read_bytes(), type=RouteTable)
        return {name: route.variants[0].weight for name, route in table.routes.items()}

    first, second = text(1, a=1, b=1, c=1, d=1), text(2, a=1, b=2, c=1)
    third, fourth = text(3, a=3, b=2, c=1), text(4, a=4, b=2, c=1)
    client = connect(1)
    assert not await client.change_routes(second.changes_since(first)), "it has no table yet"
    assert not routes_file.exists()
    await client.put_routes(first.content)
    assert not await client.change_routes(third.changes_since(second))
    assert weights() == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert await client.change_routes(second.changes_since(first))
    assert weights() == {"a": 1, "b": 2, "c": 1}
    assert await client.change_routes(third.changes_since(second))
    assert await client.change_routes(second.changes_since(first)), "they come late, and twice"
    assert weights() == {"a": 3, "b": 2, "c": 1}
    with pytest.raises(Invalid, match="no changes"):
        await client.change_routes(b"{}")
    newer = connect(2)
    assert not await newer.change_routes(fourth.changes_since(third)), "of another leader"
    await newer.put_routes(first.content)
    assert await newer.change_routes(second.changes_since(first))
    assert weights() == {"a": 1, "b": 2, "c": 1}
    with pytest.raises(Unavailable, match="epoch 2 leads"):
        await client.put_routes(fourth.content)


async def test_a_node_of_the_release_before_gets_whole_tables(certificates):
    async def put(request):
        return Response(status_code=204)

    app = Starlette(routes=[Route("/routes", put, methods=["PUT"])])
    async with listening(app, certificates / "one") as address:
        tls = Tls(client_context(certificates / "two"), server_name("one"))
        client = NodeClient(address, tls, lambda: 1, SYSTEM)
        assert not await client.change_routes(b"{}")
        await client.put_routes(b"{}")
        client.close()


async def test_a_node_that_does_not_answer_is_unavailable(certificates):
    async def never(request):
        await request.receive()  # the body, and then the end of the connection
        await request.receive()
        return Response()

    app = Starlette(routes=[Route("/lease", never, methods=["POST"])])
    async with listening(app, certificates / "one") as address:
        tls = Tls(client_context(certificates / "two"), server_name("one"))
        client = NodeClient(address, tls, lambda: 1, SYSTEM)
        with pytest.raises(Unavailable, match="not answered in time") as silent:
            await client.renew_lease(LeaseRequest(seconds=8), 0.2)
        assert not isinstance(silent.value, NobodyListens), "it may hang, and go on"
        client.close()
    with pytest.raises(Unavailable):
        await client.check_health()
    with pytest.raises(NobodyListens):
        await client.renew_lease(LeaseRequest(seconds=8), 0.2)
