"""Requests to instances of other nodes, as callers see them."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from sagehen.frame.routes import RoutingStrategy
from sagehen.frame.routing import rank_by_affinity
from sagehen.gateway.peers import model_nodes


class Held:
    """A container that answers when it is told to."""

    def __init__(self) -> None:
        self.held: asyncio.Queue[asyncio.Future] = asyncio.Queue()
        self.working = 0
        self.most = 0

    async def answer(self, asked):
        waiting = asyncio.get_running_loop().create_future()
        self.held.put_nowait(waiting)
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await waiting
        finally:
            self.working -= 1
        return 200, {}, asked.body

    async def let_go(self) -> None:
        (await self.held.get()).set_result(None)


async def test_an_instance_of_another_node_answers(nodes, echo, eventually):
    await nodes.start(2)
    fake = await nodes[1].fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, fake)))
    await nodes.are_linked()
    got = await nodes[0].invoke(b"1,2")
    assert (got.status, got.body) == (200, b"1,2")
    assert got.headers["content-type"] == "text/csv"
    assert got.headers["x-amzn-invoked-production-variant"] == "Main"
    assert [asked.path for asked in fake.asked] == ["/invocations"]
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_request_that_comes_before_the_link_is_open_waits(nodes, echo):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(echo))))
    assert (await nodes[0].invoke(b"at once")).body == b"at once"


async def test_the_instances_of_all_nodes_share_the_work(nodes, echo):
    await nodes.start(3)
    fakes = [await house.fake(echo) for house in nodes.houses]
    nodes.route(nodes.variant(*(nodes.instance(at, fake) for at, fake in enumerate(fakes))))
    await nodes.are_linked()
    answers = await asyncio.gather(*(nodes[0].invoke(b"%d" % at) for at in range(60)))
    assert [got.body for got in answers] == [b"%d" % at for at in range(60)]
    assert all(len(fake.asked) > 5 for fake in fakes), [len(fake.asked) for fake in fakes]


@pytest.mark.parametrize("size", [0, 65_537, 5_000_000])
async def test_large_bodies_pass_both_ways(nodes, echo, eventually, size):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(echo))))
    await nodes.are_linked()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    got = await nodes[0].invoke(body)
    assert (got.status, got.body == body) == (200, True)
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_slot_goes_to_whoever_has_waited_longest_on_any_node(nodes, eventually):
    await nodes.start(3)
    held = Held()
    fake = await nodes[2].fake(held.answer)
    nodes.route(nodes.variant(nodes.instance(2, fake, slots=1)))
    await nodes.are_linked()
    calls = []
    for number in range(6):
        calls.append(asyncio.create_task(nodes[number % 3].invoke(b"%d" % number)))
        await eventually(lambda number=number: _waiting(nodes) + held.working == number + 1)
    for _ in range(6):
        await held.let_go()
    await asyncio.gather(*calls)
    assert [asked.body for asked in fake.asked] == [b"%d" % number for number in range(6)]
    assert held.most == 1
    await eventually(lambda: nodes.have_nothing_left)


def _waiting(nodes) -> int:
    """Requests that wait in the gateway of their caller."""
    count = 0
    for house in nodes.houses:
        for queue in house.gateway._routes._queues.values():
            count += sum(not waiter.is_of_other_node for waiter in queue.waiters())
    return count


async def test_whichever_node_is_free_first_takes_the_next(nodes, eventually):
    await nodes.start(3)
    first, second = Held(), Held()
    one, two = await nodes[1].fake(first.answer), await nodes[2].fake(second.answer)
    instances = nodes.instance(1, one, slots=1), nodes.instance(2, two, slots=1)
    nodes.route(nodes.variant(*instances, strategy=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS))
    await nodes.are_linked()
    calls = [asyncio.create_task(nodes[0].invoke(b"%d" % number)) for number in range(2)]
    await eventually(lambda: first.working and second.working)
    calls += [asyncio.create_task(nodes[0].invoke(b"late %d" % number)) for number in range(2)]
    await eventually(lambda: _waiting(nodes) == 2)
    await second.let_go()
    await eventually(lambda: len(two.asked) == 2)
    await second.let_go()
    await eventually(lambda: len(two.asked) == 3)
    assert len(one.asked) == 1
    await second.let_go()
    await first.let_go()
    assert [got.status for got in await asyncio.gather(*calls)] == [200] * 4
    assert (first.most, second.most) == (1, 1)
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_client_that_goes_gives_its_place_and_its_slot_back(nodes, eventually):
    await nodes.start(2)
    held = Held()
    fake = await nodes[1].fake(held.answer)
    nodes.route(nodes.variant(nodes.instance(1, fake, slots=1)))
    await nodes.are_linked()
    working = await nodes[0].connect()
    working.send(nodes[0].signed(b"working"))
    await eventually(lambda: held.working)
    waiting = await nodes[0].connect()
    waiting.send(nodes[0].signed(b"waiting"))
    await eventually(lambda: _waiting(nodes) == 1)
    waiting.close()
    await eventually(lambda: _waiting(nodes) == 0)
    working.close()
    await eventually(lambda: fake.lost == 1)
    await eventually(lambda: nodes.have_nothing_left)
    assert len(fake.asked) == 1


async def test_an_error_of_the_container_is_worded_as_on_one_machine(nodes, eventually):
    await nodes.start(2)

    def refuse(asked):
        return 418, {"Content-Type": "text/plain"}, b"no coffee"

    nodes.route(
        nodes.variant(nodes.instance(1, await nodes[1].fake(refuse))),
    )
    await nodes.are_linked()
    here = await nodes[1].invoke()
    there = await nodes[0].invoke()
    assert there.status == here.status == 424
    assert there.headers["x-amzn-errortype"] == here.headers["x-amzn-errortype"] == "ModelError"
    assert there.json == here.json
    assert there.json["OriginalStatusCode"] == 418
    counters = [house.gateway._counters.variant("price", "Main") for house in nodes.houses]
    assert [each.errors_4xx for each in counters] == [1, 1]
    assert [each.invocations for each in counters] == [1, 1]
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_refusal_before_the_beginning_goes_to_another_node(nodes, echo, eventually):
    await nodes.start(3)

    def not_started(asked):
        return 503, {"x-sagehen-not-started": "1"}, b""

    refusing, willing = await nodes[1].fake(not_started), await nodes[2].fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, refusing), nodes.instance(2, willing)))
    await nodes.are_linked()
    answers = [await nodes[0].invoke(b"%d" % number) for number in range(10)]
    assert [got.status for got in answers] == [200] * 10
    assert refusing.asked
    assert len(willing.asked) == 10
    await eventually(lambda: nodes.have_nothing_left)


async def test_no_node_can_answer(nodes):
    await nodes.start(2)

    def not_started(asked):
        return 503, {"x-sagehen-not-started": "1"}, b""

    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(not_started))))
    await nodes.are_linked()
    got = await nodes[0].invoke()
    assert got.status == 503


async def test_a_stream_comes_piece_by_piece(nodes, eventually):
    await nodes.start(2)
    second = asyncio.Event()

    async def pieces(head, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await second.wait()
        writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
        await writer.drain()

    address = await nodes[1].raw(pieces, nodes[1].home.run / "pieces.sock")
    nodes.route(nodes.variant(nodes.instance(1, address)))
    await nodes.are_linked()
    client = await nodes[0].connect()
    client.send(nodes[0].signed(path="/endpoints/price/invocations-response-stream"))
    status, _ = await client.head()
    first = await client.reader.readuntil(b"first")
    second.set()
    rest = await client.reader.readuntil(b"second")
    assert (status, b"second" in first, b"second" in rest) == (200, False, True)
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_container_that_is_lost_in_a_request_is_its_error(nodes, eventually):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(lambda asked: None))))
    await nodes.are_linked()
    got = await nodes[0].invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")
    await eventually(lambda: nodes.have_nothing_left)


async def test_models_are_loaded_by_the_node_of_the_instance(nodes, echo, eventually):
    await nodes.start(2)

    def load(asked):
        if asked.path.endswith("/touch"):
            return 200, {}, b"{}"
        request = msgspec.json.decode(asked.body)
        if request["target_model"] == "bad one.tar.gz":
            return 424, {}, b'{"message": "It is broken."}'
        return 200, {}, b'{"model_name": "opaque"}'

    agent = await nodes[1].agent(load)
    fake = await nodes[1].fake(echo)
    nodes.route(nodes.variant(nodes.instance(1, fake), multi_model=True))
    await nodes.are_linked()
    got = await nodes[0].invoke(X_Amzn_SageMaker_Target_Model="a b.tar.gz")
    assert (got.status, [asked.path for asked in fake.asked]) == (200, ["/models/opaque/invoke"])
    loads = [asked for asked in agent.asked if asked.path.endswith("/models")]
    assert msgspec.json.decode(loads[0].body)["target_model"] == "a b.tar.gz"
    bad = await nodes[0].invoke(X_Amzn_SageMaker_Target_Model="bad one.tar.gz")
    assert (bad.status, bad.json["OriginalMessage"]) == (424, "It is broken.")
    assert nodes[1].gateway._counters.variant("price", "Main").cache_samples == 2
    assert nodes[0].gateway._counters.variant("price", "Main").invocations == 2
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_model_goes_to_a_node_that_has_it_on_disk(nodes, echo, eventually):
    """Of all instances, those of n2 are the last by affinity."""
    await nodes.start(3)
    holders = {"m": ["n2"]}
    asked_for = []

    def answer(asked):
        if asked.path.startswith("/artifact-directory?"):
            url = parse_qs(urlsplit(asked.path).query)["url"][0]
            asked_for.append(url)
            name = url.removeprefix("s3://models/all/")
            return 200, {}, msgspec.json.encode({"nodes": holders.get(name, [])})
        return 200, {}, b'{"model_name": "opaque"}'

    for node in nodes.houses:
        await node.agent(answer)
    fakes = [await node.fake(echo) for node in nodes.houses]
    ids = [f"i-{number}" for number in range(9)]
    last = [ids[at] for at in rank_by_affinity(ids, "m")][-3:]
    instances = [
        nodes.instance(2, fakes[2], instance_id=name)
        if name in last
        else nodes.instance(number % 2, fakes[number % 2], instance_id=name)
        for number, name in enumerate(ids)
    ]
    nodes.route(nodes.variant(*instances, multi_model=True, models_url="s3://models/all/"))
    await nodes.are_linked()

    async def invoke(count):
        for _ in range(count):
            got = await nodes[0].invoke(X_Amzn_SageMaker_Target_Model="m")
            assert got.status == 200

    await invoke(3)
    assert [len(fake.asked) for fake in fakes] == [0, 0, 3]
    assert asked_for == ["s3://models/all/m"], "asked once, and by the first gateway alone"
    # Nobody has another one: it goes where it would on one machine.
    first = rank_by_affinity(ids, "other")[0]
    got = await nodes[0].invoke(X_Amzn_SageMaker_Target_Model="other")
    assert got.status == 200
    assert [len(fake.asked) for fake in fakes] == [
        [0, 0, 3][number] + (instances[first].node_id == f"n{number}") for number in range(3)
    ]
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_request_for_a_model_goes_on_without_an_answer(nodes, echo, eventually):
    await nodes.start(2)
    fakes = [await node.fake(echo) for node in nodes.houses]
    # There is no agent here, so that its instance cannot load models either.
    await nodes[1].agent(lambda asked: (200, {}, b'{"model_name": "opaque"}'))
    places = [nodes.instance(number, fake) for number, fake in enumerate(fakes)]
    nodes.route(nodes.variant(*places, multi_model=True, models_url="s3://models/all/"))
    await nodes.are_linked()
    for model in ("a", "b", "c", "d"):
        got = await nodes[0].invoke(X_Amzn_SageMaker_Target_Model=model)
        assert got.status == 200
    assert [len(fake.asked) for fake in fakes] == [0, 4]
    await eventually(lambda: nodes.have_nothing_left)


async def test_who_leaves_while_it_is_asked_who_has_the_model_leaves_nothing(
    nodes, echo, eventually, kept, monkeypatch
):
    monkeypatch.setattr(model_nodes, "ASK_SECONDS", 60)
    await nodes.start(2)
    holding = Held()
    await nodes[0].agent(holding.answer)
    fakes = [await node.fake(echo) for node in nodes.houses]
    places = [nodes.instance(number, fake) for number, fake in enumerate(fakes)]
    nodes.route(nodes.variant(*places, multi_model=True, models_url="s3://models/all/"))
    await nodes.are_linked()
    client = await nodes[0].connect()
    client.send(nodes[0].signed(b"1", X_Amzn_SageMaker_Target_Model="m"))
    await eventually(lambda: holding.working == 1)
    client.close()
    await eventually(lambda: nodes.have_nothing_left)
    await holding.let_go()
    await eventually(lambda: not nodes[0].gateway._cluster.peers.model_nodes._tasks)
    assert nodes.have_nothing_left
    assert [len(fake.asked) for fake in fakes] == [0, 0]
    del client
    assert kept() == {}


@pytest.mark.parametrize("action", ["invocations", "invocations-response-stream"])
@pytest.mark.parametrize("size", [10, 100_000, 600_000], ids=["small", "large", "windows"])
async def test_a_request_leaves_no_cycle(nodes, echo, kept, action, size):
    await nodes.start(2)
    nodes.route(nodes.variant(nodes.instance(1, await nodes[1].fake(echo))))
    await nodes.are_linked()
    client = await nodes[0].connect()
    for _ in range(3):
        client.send(nodes[0].signed(bytes(size), path=f"/endpoints/price/{action}"))
        assert (await client.answer()).status == 200
    assert kept() == {}
