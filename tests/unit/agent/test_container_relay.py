"""Connections to containers of another node: over TLS, between a real relay and its client."""

import asyncio
import os
import socket
import ssl
import struct
from contextlib import suppress

import pytest

from sagehen.agent import container_relay
from sagehen.base.cluster_certificates import (
    client_context,
    server_name,
)
from sagehen.frame.container_relay import ALPN, RelayRequest, encode_message
from sagehen.http1.call import call_once
from support.fixtures.container_relay import echo
from support.fixtures.gateway import eventually
from support.link_gateway import MEBIBYTE


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


async def test_node_without_control_reaches_no_container(far):
    await far.container(echo)
    far.certificate, far.epoch = "other", 999_999
    with pytest.raises(ConnectionRefusedError, match="Only the cluster's controls may ask this"):
        await far.talk()
    far.lease.check_epoch(3)


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
