"""Nodes that are gone, hang, or are not of this cluster."""

import asyncio

import pytest

from sagehen.base.cluster_certificates import make_authority
from sagehen.gateway.peers import nodes as nodes_module
from sagehen.link.frames import PREFACE, REFUSAL, encode_frame


@pytest.fixture
def quick_looks(monkeypatch):
    """Nodes are looked at 50 times a second."""
    from sagehen.gateway import gateway

    monkeypatch.setattr(gateway, "LOOK_SECONDS", 0.02)


def held():
    """A container that never answers, and how many requests it has."""
    asked = []

    async def answer(request):
        asked.append(request.body)
        await asyncio.Event().wait()

    return answer, asked


async def test_only_requests_that_a_lost_node_had_are_lost(nodes, echo, eventually):
    await nodes.start(3)
    answer, asked = held()
    lost, other = await nodes[1].fake(answer), await nodes[2].fake(echo)
    instance = nodes.instance(1, lost, slots=2)
    nodes.route(nodes.variant(instance))
    await nodes.are_linked()
    calls = [asyncio.create_task(nodes[0].invoke(b"%d" % at)) for at in range(2)]
    await eventually(lambda: len(asked) == 2)
    # These wait in their own gateway; only the other node can take them.
    waiting = [asyncio.create_task(nodes[0].invoke(b"late %d" % at)) for at in range(5)]
    await eventually(lambda: nodes[0].gateway._routes.queued == 5)
    nodes.route(nodes.variant(instance, nodes.instance(2, other, slots=1)))
    late = await asyncio.gather(*waiting)
    assert [got.status for got in late] == [200] * 5
    await nodes.lose(1)
    answers = await asyncio.gather(*calls)
    assert [(got.status, got.headers["x-amzn-errortype"]) for got in answers] == [
        (424, "ModelError")
    ] * 2
    assert [(await nodes[0].invoke(b"%d" % at)).status for at in range(10)] == [200] * 10


async def test_waiting_requests_of_a_lost_node_go_elsewhere_or_are_refused(nodes, eventually):
    await nodes.start(2)
    answer, asked = held()
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(answer), slots=1)))
    await nodes.are_linked()
    call = asyncio.create_task(nodes[0].invoke(b"1"))
    await eventually(lambda: asked)
    waiting = asyncio.create_task(nodes[0].invoke(b"2"))
    await eventually(lambda: nodes[0].gateway._routes.queued == 1)
    await nodes.lose(1)
    assert (await call).status == 424
    refused = await waiting
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert (await nodes[0].invoke(b"3")).status == 503, "at once, while the node is away"
    assert asked == [b"1"]


async def test_a_gateway_that_is_lost_leaves_no_slot_taken(nodes, eventually):
    await nodes.start(2)
    answer, asked = held()
    fake = await nodes[1].fake(answer)
    nodes.route(nodes.variant(nodes.instance(1, fake, slots=1)))
    await nodes.are_linked()
    calls = [asyncio.create_task(nodes[0].invoke(b"%d" % at)) for at in range(3)]
    await eventually(lambda: asked and nodes[0].gateway._routes.queued == 2)
    nodes[0].gateway._cluster.peers.abort()
    await asyncio.gather(*calls)
    await eventually(lambda: nodes[1].outstanding() == 0 and fake.lost == 1)
    assert not any(c._reservations for c in nodes[1].gateway._cluster._door.connections)
    assert asked == [b"0"]


async def test_a_node_comes_back(nodes, echo, eventually):
    await nodes.start(2)
    fake = await nodes[1].fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, fake)))
    await nodes.are_linked()
    peer = nodes[0].gateway._cluster.peers._nodes["n1"]
    before = peer._client.stream
    for connection in tuple(nodes[1].gateway._cluster._door.connections):
        connection.abort()
    await eventually(lambda: peer._client.stream not in (None, before))
    assert (await nodes[0].invoke(b"again")).body == b"again"


async def test_requests_wait_while_another_gateway_of_the_node_takes_the_link(
    nodes, echo, eventually, monkeypatch
):
    monkeypatch.setattr(nodes_module, "FIRST_RETRY_SECONDS", 0)  # The link has lasted already.
    await nodes.start(2)
    answer, asked = held()
    let_go = asyncio.Event()

    async def answer_later(request):
        if request.body == b"held":
            return await answer(request)
        await let_go.wait()
        return echo(request)

    fake = await nodes[1].fake(answer_later)
    nodes.route(nodes.variant(nodes.instance(1, fake, slots=1)))
    await nodes.are_linked()
    call = asyncio.create_task(nodes[0].invoke(b"held"))
    await eventually(lambda: asked)
    waiting = asyncio.create_task(nodes[0].invoke(b"waits"))
    await eventually(lambda: nodes[0].gateway._routes.queued == 1)
    for connection in tuple(nodes[1].gateway._cluster._door.connections):
        connection.abort()
    assert (await call).status == 424
    let_go.set()
    assert (await waiting).body == b"waits"
    assert (await nodes[0].invoke(b"new")).body == b"new"


async def test_a_node_that_hangs_is_noticed_and_cut_off(
    nodes, echo, eventually, monkeypatch, quick_looks
):
    await nodes.start(3)
    hanging, other = await nodes[1].fake(echo), await nodes[2].fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, hanging), nodes.instance(2, other)))
    await nodes.are_linked()
    nodes[1].gateway._cluster._listening.close()
    for connection in nodes[1].gateway._cluster._door.connections:
        connection._transport.pause_reading()  # as a stopped process does
    peer = nodes[0].gateway._cluster.peers._nodes["n1"]
    await eventually(lambda: peer._silent_looks >= nodes_module.SUSPECTED_AFTER or peer.is_lost)
    answers = await asyncio.gather(*(nodes[0].invoke(b"%d" % at) for at in range(20)))
    assert [got.status for got in answers] == [200] * 20
    await eventually(lambda: peer.is_lost)
    assert not hanging.asked


async def test_a_node_that_is_idle_is_not_cut_off(nodes, echo, eventually, quick_looks):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(echo))))
    await nodes.are_linked()
    (connection,) = nodes[1].gateway._cluster._door.connections
    peer = nodes[0].gateway._cluster.peers._nodes["n1"]
    stream = peer._client.stream
    looks = 0
    look = peer.look

    def counted():
        nonlocal looks
        looks += 1
        look()

    peer.look = counted
    await eventually(lambda: looks > 20)
    assert peer._client.stream is stream
    assert connection in nodes[1].gateway._cluster._door.connections


async def test_a_node_of_another_cluster_gets_nothing(nodes, echo, eventually):
    await nodes.start(2)
    stranger = nodes.make(make_authority())
    await stranger.start(nodes.listeners[2])
    mine, theirs = await nodes[1].fake(echo), await stranger.fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, mine), nodes.instance(2, theirs)))
    await eventually(lambda: nodes[0].gateway._cluster.peers._nodes["n2"].is_lost)
    answers = await asyncio.gather(*(nodes[0].invoke(b"%d" % at) for at in range(10)))
    assert [got.status for got in answers] == [200] * 10
    assert not theirs.asked
    await eventually(lambda: stranger.gateway._cluster.peers._nodes["n1"].is_lost)
    assert not any(c._is_open for c in nodes[1].gateway._cluster._door.connections if c._requests)
    assert len(mine.asked) == 10


async def test_an_address_where_nobody_listens(nodes, echo, eventually):
    await nodes.start(2)
    nodes.listeners[1].close()
    nodes.listeners[1] = nodes.listeners[0]  # a node at another's address
    nodes.route(
        nodes.variant(nodes.instance(0, await nodes[0].fake(echo)), nodes.instance(1, "link:/no"))
    )
    await eventually(lambda: nodes[0].gateway._cluster.peers._nodes["n1"].is_lost)
    assert (await nodes[0].invoke(b"1")).body == b"1"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE + b"\xff" * 64,
        PREFACE + encode_frame(13, 1, b"1 0 0 - "),
        PREFACE + encode_frame(1, 0, body=b'{"versions": [1], "cluster_versions": [99]}'),
        PREFACE
        + encode_frame(1, 0, body=b'{"versions": [1], "cluster_versions": [1]}')
        + encode_frame(3, 1, b"7 0 0 - \n", b"body"),
        PREFACE
        + encode_frame(1, 0, body=b'{"versions": [1], "cluster_versions": [1]}')
        + encode_frame(13, 1, b"no head"),
        PREFACE
        + encode_frame(1, 0, body=b'{"versions": [1], "cluster_versions": [1]}')
        + encode_frame(5, 1),
    ],
    ids=["http", "noise", "no hello", "version", "unknown route", "no head", "an answer"],
)
async def test_faults_of_a_member_end_its_link_only(nodes, echo, eventually, said):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(echo))))
    await nodes.are_linked()
    from sagehen.base.cluster_certificates import client_context

    _, port = nodes.listeners[1].getsockname()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=client_context(nodes[0].home.cluster),
        server_hostname="n1.node.sagehen",
    )
    writer.write(said)
    answer = await reader.read()
    assert not answer or REFUSAL in answer
    writer.close()
    assert (await nodes[0].invoke(b"1")).body == b"1"
    await eventually(lambda: len(nodes[1].gateway._cluster._door.connections) == 1)
