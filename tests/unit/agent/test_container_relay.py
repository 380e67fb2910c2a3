"""Connections to containers of another node: over TLS, between a real relay and its client."""

import asyncio
import os
import socket
import ssl
import struct
from contextlib import AsyncExitStack, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sagehen.agent import container_relay
from sagehen.agent.container_relay import ContainerRelay
from sagehen.agent.control_lease import ControlLease
from sagehen.app.roles.common import serving_tls
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import (
    client_context,
    issue,
    make_authority,
    server_context,
    server_name,
    write_certificate,
)
from sagehen.base.errors import NotFound, Unavailable
from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.frame.container_relay import ALPN, RelayNodes, RelayRequest, encode_message
from sagehen.frame.relay_connector import RelayConnector
from sagehen.http1.call import call_once
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS
from sagehen.link.upstream import open_upstreams
from support.fixtures.gateway import eventually
from support.link_gateway import MEBIBYTE, Gateway
from support.links import Request

CONTAINER = "node:far/i-1/0"
LINK = "link:node:far/i-1/0"


class Talk(asyncio.Protocol):
    """A client that keeps what it hears."""

    def __init__(self):
        self.received = bytearray()
        self.calls = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data

    def eof_received(self):
        self.calls.append("eof")

    def pause_writing(self):
        self.calls.append("full")

    def resume_writing(self):
        self.calls.append("drained")

    def connection_lost(self, exc):
        self.calls.append(exc)

    @property
    def end(self):
        """The calls at the end, once it has come."""
        return [call for call in self.calls if call not in ("full", "drained")]


class Far:
    """A node with a relay, as another one reaches it."""

    def __init__(self, folder, stack, tmp_path):
        self.folder, self.stack, self.tmp_path = folder, stack, tmp_path
        self.containers = {}
        """addresses by instance and number"""
        self.lease = ControlLease("run", tmp_path / "epoch", 600, SYSTEM)
        self.relay = ContainerRelay(self.find, self.lease.check_epoch, SYSTEM)
        self.lease.on_new_epoch = self.relay.cut_older
        self.epoch = 3
        self.addresses = {}
        self.certificate = "near"
        self.connector = RelayConnector(self.nodes)

    def find(self, instance_id, number):
        try:
            return self.containers[instance_id, number]
        except KeyError:
            raise NotFound(f"There is no instance {instance_id}.") from None

    def nodes(self):
        folder = str(self.folder / self.certificate)
        return RelayNodes(epoch=self.epoch, addresses=self.addresses, certificates=folder)

    async def listen(self, others=True, certificate="far"):
        async def hello(request):
            return PlainTextResponse("hello")

        app = Starlette(routes=[Route("/hello", hello)])
        listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        context = server_context(self.folder / certificate)
        protocols = {ALPN: self.relay.accept} if others else {}
        await self.stack.enter_async_context(serving_tls(listener, context, app, protocols))
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.addresses["far"] = self.address

    async def container(self, handle, instance_id="i-1", number=0):
        """A container that talks by `handle(reader, writer)`."""

        async def handled(reader, writer):
            try:
                await handle(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(handled, "127.0.0.1", 0, limit=2**20)
        self.stack.push_async_callback(server.wait_closed)
        self.stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        self.containers[instance_id, number] = f"tcp:127.0.0.1:{port}"

    async def talk(self, address=CONTAINER):
        talk = await self.connector(address, Talk, SYSTEM)
        self.stack.callback(talk.transport.abort)
        return talk

    @property
    def is_left(self):
        """Whether the relay has no connection."""
        return not self.relay.connections


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority()
    for name in ("near", "far", "other"):
        write_certificate(folder / name, issue(authority, name))
    write_certificate(folder / "stranger", issue(make_authority(), "near"))
    return folder


@pytest.fixture
async def far(certificates, tmp_path):
    async with AsyncExitStack() as stack:
        far = Far(certificates, stack, tmp_path)
        await far.listen()
        yield far
        far.relay.close()


async def echo(reader, writer):
    while data := await reader.read(2**18):
        writer.write(data)
        await writer.drain()


# Bytes


async def test_bytes_go_both_ways(far):
    await far.container(echo)
    talk = await far.talk()
    talk.transport.write(b"one ")
    talk.transport.write(b"two")
    await eventually(lambda: talk.received == b"one two")


async def test_a_large_body_goes_both_ways_and_neither_side_holds_it(far):
    held = []

    async def slow_echo(reader, writer):
        received = 0
        while received < len(body):
            data = await reader.read(2**16)
            received += len(data)
            writer.write(data)
            await writer.drain()

    body = os.urandom(24 * MEBIBYTE)
    await far.container(slow_echo)
    talk = await far.talk()
    for start in range(0, len(body), MEBIBYTE):
        talk.transport.write(body[start : start + MEBIBYTE])
        (relayed,) = far.relay.connections
        await eventually(lambda: talk.calls[-1:] != ["full"])
        held.append(
            relayed._transport.get_write_buffer_size()
            + relayed._container.transport.get_write_buffer_size()
        )
    await eventually(lambda: len(talk.received) == len(body))
    assert talk.received == body
    assert max(held) < 4 * MEBIBYTE


async def test_a_client_that_does_not_read_stops_the_container(far):
    sent = 0

    async def flood(reader, writer):
        nonlocal sent
        while sent < 200 * MEBIBYTE:
            writer.write(bytes(MEBIBYTE))
            await writer.drain()
            sent += MEBIBYTE

    await far.container(flood)
    talk = await far.talk()
    talk.transport.pause_reading()
    before = -1
    while sent > before:
        before = sent
        await asyncio.sleep(0.2)
    assert sent < 100 * MEBIBYTE


# The way is refused: nothing has begun


async def test_only_instances_that_run_here_are_reached(far):
    await far.container(echo)
    for name in ("i-2", "..", "%2e%2e"):
        with pytest.raises(ConnectionRefusedError, match=f"There is no instance {name}"):
            await far.talk(f"node:far/{name}/0")
    with pytest.raises(ConnectionRefusedError, match="There is no instance i-1"):
        await far.talk("node:far/i-1/1")
    await eventually(lambda: far.is_left)


async def test_a_container_that_does_not_listen_refuses(far):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for address in (f"tcp:127.0.0.1:{port}", "link:/nowhere/s.sock"):
        far.containers["i-1", 0] = address
        with pytest.raises(ConnectionRefusedError, match="cannot be reached"):
            await far.talk()


async def test_a_control_that_no_longer_leads_is_refused_and_cut_off(far):
    await far.container(echo)
    old = await far.talk()
    far.lease.check_epoch(4)
    await eventually(lambda: old.end)
    assert isinstance(old.end[0], ConnectionAbortedError)
    with pytest.raises(ConnectionRefusedError, match="epoch 4 leads this node; this request is of"):
        await far.talk()
    far.epoch = 4
    await far.talk()


async def test_a_node_that_does_not_answer_is_not_asked(far):
    far.addresses.clear()
    with pytest.raises(ConnectionRefusedError, match="The node far does not answer now"):
        await far.talk()


async def test_only_members_of_the_cluster_are_relayed(far):
    await far.container(echo)
    far.certificate = "stranger"
    with pytest.raises((OSError, ssl.SSLError)):
        await far.talk()
    assert far.is_left


async def test_another_node_at_the_address_is_none(far):
    await far.container(echo)
    far.addresses.clear()
    await far.listen(certificate="other")
    with pytest.raises(ssl.SSLCertVerificationError):
        await far.talk()


async def test_a_node_without_a_relay_is_told_from_one(far):
    await far.listen(others=False)
    with pytest.raises(ConnectionRefusedError, match="a version of Sagehen without this relay"):
        await far.talk()


async def test_the_same_port_goes_on_to_speak_http(far):
    async def connect(address, make, clock):
        loop = asyncio.get_running_loop()
        host, _, port = far.address.rpartition(":")
        context = client_context(far.folder / "near")
        name = server_name("far")
        return (
            await loop.create_connection(make, host, int(port), ssl=context, server_hostname=name)
        )[1]

    answer = await call_once("", "GET", "/hello", timeout_seconds=60, connector=connect)
    assert answer.text == "hello"


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /instances HTTP/1.1\r\n\r\n",
        struct.pack("!I", 2) + b"{}",
        encode_message(RelayRequest(epoch=3, instance_id="i-1", container=0)) + b"too early",
    ],
)
async def test_what_is_no_request_ends_the_connection(far, sent):
    await far.container(echo)
    reader, writer = await raw(far)
    writer.write(sent)
    assert await reader.read() == b""
    writer.close()


async def test_who_asks_nothing_is_not_waited_for(far, monkeypatch):
    monkeypatch.setattr(container_relay, "REQUEST_SECONDS", 0.05)
    reader, writer = await raw(far)
    with pytest.raises(asyncio.IncompleteReadError):
        await reader.readexactly(1)
    writer.close()


async def raw(far):
    context = client_context(far.folder / "near")
    context.set_alpn_protocols([ALPN])
    host, _, port = far.address.rpartition(":")
    return await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname=server_name("far")
    )


# The end


async def test_the_containers_own_end_is_told_from_a_loss(far):
    async def answer(reader, writer):
        await reader.readexactly(2)
        writer.write(b"whole")

    await far.container(answer)
    talk = await far.talk()
    talk.transport.write(b"go")
    await eventually(lambda: talk.end)
    assert (talk.received, talk.end) == (b"whole", ["eof", None])
    await eventually(lambda: far.is_left)


async def test_a_container_that_breaks_off_is_lost(far):
    async def break_off(reader, writer):
        await reader.readexactly(2)
        writer.write(b"half")
        await writer.drain()
        await reader.readexactly(2)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    await far.container(break_off)
    talk = await far.talk()
    talk.transport.write(b"go")
    await eventually(lambda: talk.received == b"half")
    talk.transport.write(b"on")
    await eventually(lambda: talk.end)
    assert isinstance(talk.end[0], ConnectionAbortedError)


async def test_the_end_of_the_relay_is_a_loss(far):
    await far.container(echo)
    talk = await far.talk()
    far.relay.close()
    await eventually(lambda: talk.end)
    assert isinstance(talk.end[0], ConnectionAbortedError)


async def test_a_node_that_is_lost_is_cut_off(far):
    """Also one that hangs: it ends no connection."""
    await far.container(echo)
    talk = await far.talk()
    far.connector.cut_lost()
    assert not talk.transport.is_closing()
    far.addresses["far"] = "127.0.0.1:1"
    far.connector.cut_lost()
    await eventually(lambda: talk.end)
    assert isinstance(talk.end[0], ConnectionAbortedError)
    await eventually(lambda: far.is_left)


async def test_the_rest_of_an_answer_waits_for_its_reader(far, monkeypatch):
    """Control reads on when it has written what came before; the object store may be away."""
    monkeypatch.setattr(container_relay, "LINGER_SECONDS", 0)  # Refusals are read at once.
    size = 200_000

    async def answer(reader, writer):
        await reader.readexactly(1)
        writer.write(bytes(size))

    await far.container(answer)
    talk = await far.talk()
    talk.transport.pause_reading()
    talk.transport.write(b"?")
    (relayed,) = far.relay.connections
    await eventually(lambda: relayed._phase is container_relay._Phase.LINGERING)
    left = relayed._deadline.when() - asyncio.get_running_loop().time()
    assert left > 300
    talk.transport.resume_reading()
    await eventually(lambda: len(talk.received) == size and talk.end)
    assert talk.end[0] == "eof"


async def test_who_leaves_ends_the_connection_to_the_container(far):
    ended = asyncio.Event()

    async def listen(reader, writer):
        with suppress(ConnectionError):
            await reader.read()
        ended.set()

    await far.container(listen)
    talk = await far.talk()
    talk.transport.abort()
    await asyncio.wait_for(ended.wait(), 60)
    await eventually(lambda: far.is_left)


async def test_an_answer_before_the_end_of_the_body_arrives(far):
    """The container reads no more, so that the rest of the body meets a closed socket."""

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
        await writer.drain()
        writer.transport.abort()

    await far.container(refuse)
    request = Request(
        open_upstreams(CONTAINER, SYSTEM, connector=far.connector),
        bytes(20 * MEBIBYTE),
        at_once=20 * MEBIBYTE,
    )
    await eventually(lambda: request.is_answered or request.is_broken)
    assert (request.status, request.body) == (413, b"long")


# Through the clients that are used


async def test_http_goes_through(far):
    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /execution-parameters")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nopen end")

    await far.container(answer, number=1)
    told = await call_once(
        "node:far/i-1/1",
        "GET",
        "/execution-parameters",
        timeout_seconds=60,
        connector=far.connector,
    )
    assert told.text == "open end"


async def test_an_answer_without_length_that_is_cut_off_is_not_whole(far):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await reader.read()

    await far.container(answer)
    request = Request(open_upstreams(CONTAINER, SYSTEM, connector=far.connector), b"x")
    await eventually(lambda: request.body == b"half")
    far.relay.close()
    await eventually(lambda: request.is_answered or request.is_broken)
    assert request.is_broken
    assert not request.call.not_begun


async def test_a_link_goes_through_and_what_counts_as_begun(far, short_path):
    """Marks of begun requests stay on the other machine: whatever was sent as a whole counts."""
    gateway = Gateway(short_path)
    path = short_path / "s.sock"
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: FirstBytes(gateway.server, short_path), path)
    far.containers["i-1", 0] = f"link:{path}"
    slots = []
    client = open_upstreams(LINK, SYSTEM, slots.append, connector=far.connector)
    large = Request(client, bytes(25 * MEBIBYTE), at_once=25 * MEBIBYTE)
    await eventually(lambda: gateway.requests)
    gateway.requests.pop().respond(ModelAnswer(200, bytes(30 * MEBIBYTE)))
    await eventually(lambda: large.is_answered)
    assert len(large.body) == 30 * MEBIBYTE
    assert slots == [7]

    sent = Request(client, b"sent")
    await eventually(lambda: gateway.requests)
    half = Request(client, bytes(9 * MEBIBYTE), at_once=MEBIBYTE)
    await eventually(lambda: half.call is not None)
    far.relay.close()
    await eventually(lambda: sent.is_broken and half.is_broken)
    assert not sent.call.not_begun
    assert half.call.not_begun
    far.containers.clear()
    nowhere = Request(client, b"x")
    await eventually(lambda: nowhere.was_refused)
    assert not list(short_path.glob("*begun*"))
    client.abort()
    server.close()


async def test_a_silent_node_is_given_up(far):
    """Its socket takes connections, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        far.addresses["far"] = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable):
            await call_once(CONTAINER, "GET", "/ping", timeout_seconds=0.1, connector=far.connector)
    assert CONNECT_TIMEOUT_SECONDS < 10, "links and pools bound it themselves"
