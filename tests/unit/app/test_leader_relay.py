"""Own paths that a control which stands by passes on to the one that leads."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from sagehen.app.leader_relay import LeaderRelay
from sagehen.app.roles.common import serving_tls
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import (
    issue,
    make_authority,
    server_context,
    write_certificate,
)
from sagehen.base.home import prepare_home
from sagehen.frame.routes import NodeRoute, RouteTable


class Control:
    """One of two controls: `leads` says whether it does."""

    def __init__(self, home, node_id, leads):
        self.home, self.node_id, self.leads = home, node_id, leads
        self.seen = []
        self.port = 0
        methods = ["GET", "HEAD", "POST"]
        app = Starlette(routes=[Route("/{path:path}", self.answer, methods=methods)])
        self.outage = ""
        self.relay = LeaderRelay(
            home, node_id, lambda: self.leads, "the token", SYSTEM, lambda: self.outage
        )
        self.app = self.relay.wrap(app)

    async def answer(self, request):
        authorization = request.headers.get("authorization")
        body = await request.body()
        self.seen.append((request.method, str(request.url).split("/", 3)[3], authorization, body))
        return Response(f"of {self.node_id}", 202, media_type="text/plain")

    def know_leader(self, node_id, port):
        route = NodeRoute(peer_address="h:1", control_address=f"127.0.0.1:{port}")
        table = RouteTable(routes={}, nodes={"x": NodeRoute(peer_address="h:2"), node_id: route})
        self.home.routes.write_bytes(msgspec.json.encode(table))

    async def ask(self, method, path, body=b"", headers=()):
        """The status and the text of the answer."""
        start, *rest = await self.messages(method, path, body, headers)
        return start["status"], b"".join(part.get("body", b"") for part in rest).decode()

    async def messages(self, method, path, body=b"", headers=()):
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [*headers],
            "scheme": "http",
            "server": ("127.0.0.1", 1),
        }
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        return sent


@pytest.fixture
async def pair(short_path):
    """The leader `lead`, reached over TLS, and `other`, which knows where it is."""
    authority = make_authority()
    controls = []
    async with AsyncExitStack() as stack:
        for name in ("lead", "other"):
            home = prepare_home(short_path / name)
            write_certificate(home.cluster, issue(authority, name))
            control = Control(home, name, name == "lead")
            stack.callback(control.relay.close)
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            control.port = listener.getsockname()[1]
            await stack.enter_async_context(
                serving_tls(listener, server_context(home.cluster), control.app)
            )
            controls.append(control)
        for control in controls:
            control.know_leader("lead", controls[0].port)
        yield controls


async def test_the_leader_reads_what_gateways_of_a_standby_report(pair):
    lead, other = pair
    path = "/_sagehen/internal/starts"
    assert await other.ask("POST", path, b"calls wait") == (202, "of lead")
    assert await lead.ask("POST", path, b"mine") == (202, "of lead")
    assert [body for *_, body in lead.seen] == [b"calls wait", b"mine"]
    assert other.seen == []


async def test_the_status_is_that_of_the_cluster(pair):
    lead, other = pair
    assert await other.ask("GET", "/_sagehen/status?x=%2F1") == (202, "of lead")
    assert await other.ask("GET", "/_sagehen/metrics") == (202, "of lead")
    assert lead.seen[0] == ("GET", "_sagehen/status?x=%2F1", "Bearer the token", b"")


async def test_a_standby_answers_the_rest_itself(pair):
    _, other = pair
    for path in ("/_sagehen/health", "/_sagehen/cluster/nodes/x/leave", "/_sagehen/stacks"):
        assert await other.ask("GET", path) == (202, "of other")


async def test_while_the_state_is_away_that_is_said(pair):
    lead, _ = pair
    lead.leads, lead.outage = False, "The state cannot be reached now: refused"
    status, text = await lead.ask("GET", "/_sagehen/status")
    assert status == 503
    assert "The state cannot be reached now: refused" in text


async def test_the_nodes_are_those_that_the_leader_sees(pair):
    lead, other = pair
    assert await other.ask("GET", "/_sagehen/cluster") == (202, "of lead")
    assert await lead.ask("GET", "/_sagehen/cluster") == (202, "of lead")


async def test_without_a_leader_each_control_shows_the_nodes_that_it_sees(pair):
    lead, other = pair
    lead.leads = False
    assert await other.ask("GET", "/_sagehen/cluster") == (202, "of other"), "it refuses"
    assert await lead.ask("GET", "/_sagehen/cluster") == (202, "of lead"), "it knows no other"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    other.know_leader("lead", port)
    assert await other.ask("GET", "/_sagehen/cluster") == (202, "of other"), "it is gone"


async def test_a_head_is_answered_without_a_body(pair):
    _, other = pair
    async with asyncio.timeout(5):
        start, *rest = await other.messages("HEAD", "/_sagehen/metrics")
    assert start["status"] == 202
    assert dict(start["headers"])[b"content-length"] == b"7"
    assert b"".join(part.get("body", b"") for part in rest) == b""
    assert await other.ask("GET", "/_sagehen/metrics") == (202, "of lead"), "on the same connection"


async def test_one_that_does_not_lead_refuses_what_was_passed_on(pair):
    """Otherwise two that stand by would send a report to and fro, or one would keep it."""
    lead, other = pair
    lead.leads = False
    status, text = await other.ask("POST", "/_sagehen/internal/gateway", b"{}")
    assert status == 503
    assert "This control does not lead." in json.loads(text)["message"]
    assert lead.seen == other.seen == []


async def test_no_report_is_answered_while_nobody_leads(pair):
    lead, other = pair
    lead.leads = False
    status, text = await lead.ask("POST", "/_sagehen/internal/gateway", b"{}")
    assert status == 503, "its route table says that it leads, and it does not"
    assert "No control that leads has sent its address yet." in json.loads(text)["message"]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    other.know_leader("lead", port)
    status, text = await other.ask("GET", "/_sagehen/status")
    assert status == 503
    assert "cannot be reached" in json.loads(text)["message"]


async def test_a_new_leader_is_followed(pair):
    lead, other = pair
    assert await other.ask("GET", "/_sagehen/status") == (202, "of lead")
    lead.leads, other.leads = False, True
    assert await other.ask("GET", "/_sagehen/status") == (202, "of other")
    await asyncio.sleep(0)
    lead.know_leader("other", other.port)
    assert await lead.ask("GET", "/_sagehen/status") == (202, "of other")


async def test_a_machine_with_another_certificate_is_not_trusted(pair):
    lead, other = pair
    other.know_leader("somebody", lead.port)
    status, _ = await other.ask("POST", "/_sagehen/internal/starts", b"{}")
    assert status == 503
    assert lead.seen == []
