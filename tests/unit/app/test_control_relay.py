"""The way from a node without a control to the control that leads."""

import asyncio
import socket

import msgspec
import pytest

from sagehen.app.control_relay import serving_control_door, serving_control_relay
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import issue, make_authority, write_certificate
from sagehen.base.errors import Unavailable
from sagehen.base.home import prepare_home
from sagehen.frame.routes import NodeRoute, RouteTable
from sagehen.http1.call import call_once


@pytest.fixture
def homes(short_path):
    """Those of the nodes `lead` and `other`."""
    authority = make_authority()
    made = {}
    for name in ("lead", "other"):
        made[name] = prepare_home(short_path / name)
        write_certificate(made[name].cluster, issue(authority, name))
    return made


@pytest.fixture
async def control(homes):
    """A control that answers with the length of what it was sent."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        body = str(length).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, homes["lead"].control_socket)
    yield server
    server.close()


def ask(homes, body=b"hello"):
    address = f"unix:{homes['other'].control_socket}"
    return call_once(address, "POST", "/x", body, timeout_seconds=30)


def send_routes(homes, port, node_id="lead"):
    route = NodeRoute(peer_address="h:1", control_address=f"127.0.0.1:{port}")
    table = RouteTable(routes={}, nodes={"other": NodeRoute(peer_address="h:2"), node_id: route})
    homes["other"].routes.write_bytes(msgspec.json.encode(table))


async def test_requests_reach_the_leading_control(homes, control):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with (
            serving_control_door(listener, homes["lead"]),
            serving_control_relay(homes["other"], SYSTEM),
        ):
            send_routes(homes, port)
            assert (await ask(homes)).text == "5"
            assert (await ask(homes, b"x" * 10_000_000)).text == "10000000"
            control.close()
            homes["lead"].control_socket.unlink(missing_ok=True)
            with pytest.raises(Unavailable):
                await ask(homes)


async def test_another_machine_at_the_address_is_not_trusted(homes, control):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        send_routes(homes, listener.getsockname()[1], node_id="somebody")
        async with (
            serving_control_door(listener, homes["lead"]),
            serving_control_relay(homes["other"], SYSTEM),
        ):
            with pytest.raises(Unavailable):
                await ask(homes)
