"""Control's front door: of whom a body is read, and who is refused before."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from sqlalchemy.exc import OperationalError

from sagehen.app.api.application import (
    LARGEST_CONTROL_BODY_BYTES,
    LARGEST_UNSIGNED_FORM_BYTES,
    Application,
)
from sagehen.base.clock import SYSTEM
from sagehen.frame.asgi import BodyBudget
from sagehen.frame.own_paths.access import Guard, Metrics, OwnSite
from sagehen.services.sagemaker.async_inference.invocations import AsyncInvocations
from sagehen.wire.signatures.sigv4 import Verifier

KEY, SECRET, HOST = "AKSHEXAMPLE", "secret", "127.0.0.1:9000"


class House:
    """Control with one operation and little memory for bodies."""

    def __init__(self):
        verifier = Verifier({KEY: SECRET}, SYSTEM, "us-east-1")
        self.bodies = BodyBudget(2 * LARGEST_CONTROL_BODY_BYTES)
        self.reads = 0
        site = OwnSite("https://sagehen.example")
        self.operations = {"sagemaker": {"ListModels": lambda call, params: {"Models": []}}}
        self.app = Application(
            self.operations,
            verifier,
            lambda request_id: _Call(request_id),
            Guard(_nothing, verifier, "token", site, Metrics("127.0.0.1", False), self.bodies),
            AsyncInvocations(verifier, self, SYSTEM, self.bodies),
            _nobody,
            site,
            self.bodies,
        )

    async def put(self, request):
        """The queue of asynchronous requests."""
        raise OperationalError("INSERT", {}, Exception("the database is away"))

    async def ask(self, head, body=b"", path="/", method="POST", query="", rest=None):
        """Status and error type; `reads` counts how often more of the body was asked for.

        With `rest`, an event, the end of the body comes once that is set.
        """
        told, pieces = [], [body]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in head.items()],
        }

        async def receive():
            self.reads += 1
            if not pieces:
                await rest.wait()
            piece = pieces.pop() if pieces else b""
            return {"type": "http.request", "body": piece, "more_body": piece and rest is not None}

        async def send(message):
            told.append(message)

        await self.app(scope, receive, send)
        self.body = b"".join(message.get("body", b"") for message in told)
        headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        return told[0]["status"], headers.get("x-amzn-errortype", "")


@dataclass(frozen=True)
class _Call:
    request_id: str
    by_link: bool = False
    warnings: tuple[str, ...] = ()
    trace_header: str | None = None


async def _nobody(scope, receive, send):
    return False


async def _nothing(scope, receive, send):
    raise AssertionError("It was let through.")


@pytest.fixture
def house():
    return House()


def signed(body=b"{}", path="/", service="sagemaker", region="us-east-1", key=KEY, **more):
    headers = {"X-Amz-Target": "SageMaker.ListModels", "Host": HOST}
    headers["Content-Type"] = "application/x-amz-json-1.1"
    request = AWSRequest("POST", f"http://{HOST}{path}", data=body, headers=headers)
    request.context["timestamp"] = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    SigV4Auth(Credentials(key, SECRET), service, region).add_auth(request)
    return {**dict(request.headers.items()), **more}


NOBODY = {"Host": HOST, "X-Amz-Target": "SageMaker.ListModels"}
HEADS = {
    "nobody": NOBODY,
    "unknown key": signed(key="AKSHOTHER"),
    "other region": signed(region="eu-north-1"),
    "old": signed(**{"X-Amz-Date": "20200101T000000Z"}),
    "no date": signed(**{"X-Amz-Date": "today"}),
    "malformed": signed(Authorization="AWS4-HMAC-SHA256 Credential=x"),
    "not signed": signed(**{"x-amz-more": "x"}),
    "bearer": {**NOBODY, "Authorization": "Bearer wrong"},
}


@pytest.mark.parametrize("path", ["/", "/endpoints/e/async-invocations", "/_sagehen/stacks"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_no_body_is_read_of_whoever_cannot_have_signed_it(house, head, path):
    status, error = await house.ask(head, bytes(1000), path)
    assert status in (400, 403)
    assert error
    assert house.reads == 0


@pytest.mark.parametrize("query", ["X-Amz-Signature=1", "X-Amz-Algorithm=x&X-Amz-Signature=1"])
async def test_nor_by_a_link(house, query):
    assert (await house.ask({"Host": HOST}, bytes(1000), query=query))[0] in (400, 403)
    assert house.reads == 0


async def test_what_is_signed_is_done(house):
    assert await house.ask(signed(), b"{}") == (200, "")
    assert house.bodies.held_bytes == 0


@pytest.mark.parametrize(("state", "status"), [("40P01", 200), ("40001", 200), ("57P01", 503)])
async def test_an_operation_that_the_database_ended_is_done_again(house, state, status):
    class Ended(Exception):
        sqlstate = state

    tries = []

    def operate(call, params):
        tries.append(params)
        if len(tries) < 3:
            raise OperationalError("UPDATE", {}, Ended())
        return {"Models": []}

    house.operations["sagemaker"]["ListModels"] = operate
    assert (await house.ask(signed(), b"{}"))[0] == status


async def test_links_that_anybody_may_send_do_not_tell_where_the_database_is(house, caplog):
    def confirm(call, params):
        values = {"token": "secret-token"}
        raise OperationalError("SELECT", values, Exception('connection to "10.0.0.7" failed'))

    house.operations["sns"] = {"ConfirmSubscription": confirm}
    topic = "arn:aws:sns:us-east-1:000000000000:t"
    query = f"Action=ConfirmSubscription&TopicArn={topic}&Token=t"
    assert (await house.ask({"Host": HOST}, method="GET", query=query))[0] == 503
    assert b"The state cannot be reached now." in house.body
    assert b"10.0.0.7" not in house.body
    assert '"10.0.0.7" failed' in caplog.text
    assert "secret-token" not in caplog.text


async def test_asynchronous_request_is_refused_while_the_database_is_away(house):
    path = "/endpoints/e/async-invocations"
    assert await house.ask(signed(b"{}", path), b"{}", path) == (503, "ServiceUnavailable")


async def test_a_body_that_is_too_large(house):
    body = bytes(LARGEST_CONTROL_BODY_BYTES + 1)
    assert (await house.ask(signed(body), body))[0] == 413
    assert house.bodies.held_bytes == 0


async def test_bodies_have_a_bound_together(house):
    body = b"{}" + b" " * (LARGEST_CONTROL_BODY_BYTES - 2)
    house.bodies.held_bytes = LARGEST_CONTROL_BODY_BYTES + 1  # others'
    assert await house.ask(signed(body), body) == (503, "ServiceUnavailable")
    assert house.bodies.hits == 1
    house.bodies.held_bytes = LARGEST_CONTROL_BODY_BYTES
    assert await house.ask(signed(body), body) == (200, "")


@pytest.mark.parametrize(
    ("host", "is_refused"),
    [(HOST, False), ("localhost:9000", False), ("sagehen.example", False), ("evil.com", True)],
)
async def test_a_link_of_a_message_leads_to_this_server_only(house, host, is_refused):
    query = "Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:000000000000:t&Token=x"
    status, _ = await house.ask({"Host": host}, path="/", method="GET", query=query)
    # SNS is not served here: whoever gets that far is told so.
    assert (status == 403) is is_refused


async def test_what_nobody_signs_leaves_room_for_what_is_signed(house):
    """Forms whose end does not come fill what such forms may take, and nothing else."""
    head = {"Host": HOST, "Content-Type": "application/x-www-form-urlencoded"}
    rest = asyncio.Event()
    form = b"Action=AssumeRoleWithSAML&SAMLAssertion=".ljust(LARGEST_UNSIGNED_FORM_BYTES, b"x")
    count = house.bodies.max_bytes // 4 // len(form)
    asked = [asyncio.create_task(house.ask(head, form, rest=rest)) for _ in range(count)]
    while house.reads < 2 * count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await house.ask(head, b"Action=AssumeRoleWithSAML"))[0] == 503
    assert await house.ask(signed(), b"{}") == (200, "")
    assert house.bodies.hits == 1
    rest.set()
    statuses = [status for status, _ in await asyncio.gather(*asked)]
    assert (set(statuses), house.bodies.held_bytes) == ({400}, 0)
