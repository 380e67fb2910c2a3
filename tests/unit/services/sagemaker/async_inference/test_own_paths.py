"""The own paths of asynchronous endpoints, asked over ASGI."""

import json
from urllib.parse import quote

import pytest
from starlette.applications import Starlette

from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.own_paths import LARGEST_BODY_BYTES, AsyncPaths
from sagehen.services.sagemaker.async_inference.queues import AsyncQueues
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    OutputTarget,
)
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.endpoints import change, in_service

NOW = 1_800_000_000.0


class House:
    """One asynchronous endpoint `e`, its queue and its paths."""

    def __init__(self, server):
        self.server = server
        self.database = server.database
        self.changed = []
        queues = AsyncQueues(server.database, server.clock, self.changed.append)
        self.app = Starlette(routes=AsyncPaths(queues).routes)

    def queue(self, *labels, name="e", received_at=NOW - 5):
        requests = [
            AsyncRequest(
                request_id=f"r-{number}-{label}"[:36],
                inference_id=label,
                endpoint_name=name,
                received_at=received_at,
                expires_at=received_at + 60,
                timeout_seconds=900,
                output=OutputTarget(location="s3://b/o", failure_location="s3://b/f"),
                input_location="s3://b/in",
            )
            for number, label in enumerate(labels)
        ]
        with self.database.write() as connection:
            return async_requests.enqueue(connection, [(one, None) for one in requests])

    def lease(self, count=1):
        with self.database.write() as connection:
            return async_leases.lease(connection, "e", count, "w", NOW, NOW + 30)

    def end(self, leased, state=AsyncState.FAILED, **more):
        with self.database.write() as connection:
            for one in leased:
                outcome = AsyncOutcome(state=state, **more)
                assert async_leases.finish(connection, one.sequence, one.attempt, outcome, NOW + 1)

    def fail(self, *labels):
        self.queue(*labels)
        self.end(self.lease(len(labels)), failure_reason="ClientError: no.", status=400)

    async def ask(self, path, method="GET", body=b"", query="", **headers):
        """Status and JSON; underscores in header names stand for hyphens."""
        answered = []
        scope = {
            "type": "http",
            "method": method,
            "path": f"/_sagehen/async/{path}",
            "raw_path": quote(f"/_sagehen/async/{path}").encode(),
            "query_string": query.encode(),
            "headers": [
                (name.replace("_", "-").lower().encode(), value.encode())
                for name, value in {"host": "127.0.0.1:9000", **headers}.items()
            ],
        }

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            answered.append(message)

        await self.app(scope, receive, send)
        said = b"".join(one.get("body", b"") for one in answered[1:])
        return answered[0]["status"], json.loads(said) if said[:1] == b"{" else said


@pytest.fixture
def house(server):
    server.model("m")
    server.config("plain")
    plan = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}
    server.config("c", AsyncInferenceConfig=plan)
    in_service(server)
    in_service(server, "real-time", "plain")
    return House(server)


async def test_how_a_queue_stands(house):
    house.queue("a", "b")
    house.lease()
    assert await house.ask("e") == (
        200,
        {
            "endpoint": "e",
            "mode": "OPEN",
            "queued": 1,
            "in_process": 1,
            "oldest_received_at": NOW - 5,
        },
    )


@pytest.mark.parametrize(
    ("verb", "mode"), [("pause", "PAUSED"), ("drain", "DRAINING"), ("resume", "OPEN")]
)
async def test_a_queue_is_paused_drained_and_opened(house, verb, mode):
    status, told = await house.ask(f"e/{verb}", "POST")
    assert (status, told["mode"]) == (200, mode)
    assert (await house.ask("e"))[1]["mode"] == mode
    assert house.changed == ["e"]


@pytest.mark.parametrize(
    ("path", "method"), [("", "GET"), ("/pause", "POST"), ("/redrive", "POST")]
)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "There is no endpoint gone."),
        ("E", "There is no endpoint E."),
        ("real-time", "Endpoint real-time is not asynchronous."),
    ],
)
async def test_there_has_to_be_an_asynchronous_endpoint(house, name, path, method, said):
    assert await house.ask(name + path, method) == (404, {"message": said})


async def test_the_state_of_a_request_that_waits(house):
    first, sequence = house.queue("a", "b")
    assert first < sequence
    status, told = await house.ask("e/requests/b")
    assert status == 200
    assert told["requests"] == [
        {
            "sequence": sequence,
            "request_id": "r-1-b",
            "inference_id": "b",
            "endpoint": "e",
            "state": "QUEUED",
            "position": 1,
            "cancel_requested": False,
            "attempts": 0,
            "lost_instances": 0,
            "redrives": 0,
            "received_at": NOW - 5,
            "expires_at": NOW + 55,
            "started_at": None,
            "ended_at": None,
            "timeout_seconds": 900,
            "input_location": "s3://b/in",
            "output_location": "s3://b/o",
            "failure_location": "s3://b/f",
            "location": None,
            "failure_reason": None,
            "container_status": None,
        }
    ]


async def test_the_state_of_a_request_that_failed(house):
    house.queue("a")
    reason = "ClientError: no."
    house.end(house.lease(), failure_reason=reason, status=400, location="s3://b/f")
    (told,) = (await house.ask("e/requests/a"))[1]["requests"]
    assert (told["state"], told["position"], told["attempts"]) == ("FAILED", None, 1)
    assert (told["started_at"], told["ended_at"]) == (NOW, NOW + 1)
    assert (told["failure_reason"], told["container_status"]) == (reason, 400)
    assert told["location"] == "s3://b/f"


async def test_all_of_one_inference_id_the_newest_first(house):
    sequences = house.queue(*["same"] * 12)
    told = (await house.ask("e/requests/same"))[1]["requests"]
    assert [one["sequence"] for one in told] == sequences[::-1]
    assert [one["position"] for one in told] == [*range(11, 1, -1), None, None]


@pytest.mark.parametrize("label", ["a/b", "..", "a b", "é", "../../x", "a?b#c", "requests/x"])
async def test_an_inference_id_may_be_nearly_anything(house, label):
    house.queue(label, "other")
    (told,) = (await house.ask(f"e/requests/{label}"))[1]["requests"]
    assert told["inference_id"] == label
    assert (await house.ask(f"e/requests/{label}", "DELETE"))[0] == 200


async def test_an_unknown_request(house):
    house.queue("a", name="other")
    for method in ("GET", "DELETE"):
        status, told = await house.ask("e/requests/a", method)
        assert status == 404
        assert told["message"].startswith("Endpoint e has no request a; ")


async def test_what_an_endpoint_was_asked_can_be_read_when_it_is_gone(house):
    house.queue("a")
    change(house.server, status=EndpointStatus.DELETING)
    assert (await house.ask("e/requests/a"))[0] == 200


async def test_a_request_is_cancelled_while_it_waits_or_is_worked_on(house):
    house.queue("same", "same")
    house.lease()
    status, told = await house.ask("e/requests/same", "DELETE")
    assert status == 200
    assert [one["cancel_requested"] for one in told["requests"]] == [True, True]
    assert house.changed == ["e"]


async def test_what_has_ended_cannot_be_cancelled(house):
    house.queue("a")
    house.end(house.lease(), AsyncState.SUCCEEDED)
    said = {"message": "Request a of endpoint e has ended already: it is SUCCEEDED."}
    assert await house.ask("e/requests/a", "DELETE") == (409, said)
    assert house.changed == []


async def test_failures_come_in_pages(house):
    house.fail("a", "b", "c")
    house.queue("waits")
    status, first = await house.ask("e/failures", query="limit=2")
    assert status == 200
    assert [one["inference_id"] for one in first["failures"]] == ["a", "b"]
    _, rest = await house.ask("e/failures", query=f"limit=2&after={first['next']}")
    assert [one["inference_id"] for one in rest["failures"]] == ["c"]
    assert rest["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=1e9"])
async def test_pages_that_cannot_be(house, query):
    status, told = await house.ask("e/failures", query=query)
    assert status == 400
    assert "must be a number from" in told["message"]


async def test_failures_are_queued_again(house):
    house.fail("a", "b", "c")
    status, told = await house.ask("e/redrive", "POST", b'{"limit": 2}')
    assert (status, told["redriven"]) == (200, 2)
    house.end(house.lease(2))
    rest = json.dumps({"after": told["next"]}).encode()
    assert (await house.ask("e/redrive", "POST", rest))[1] == {"redriven": 1, "next": None}
    assert (await house.ask("e/redrive", "POST", rest))[1] == {"redriven": 0, "next": None}
    assert (await house.ask("e/redrive", "POST"))[1] == {"redriven": 2, "next": None}
    (row,) = (await house.ask("e/requests/a"))[1]["requests"]
    assert (row["state"], row["redrives"]) == ("QUEUED", 2)
    assert house.changed == ["e"] * 4


async def test_one_failure_is_queued_again(house):
    house.fail("a", "b")
    body = b'{"inference_id": "b"}'
    assert (await house.ask("e/redrive", "POST", body))[1] == {"redriven": 1, "next": None}
    assert (await house.ask("e/redrive", "POST", body)) == (
        409,
        {"message": "Request b of endpoint e has not failed: it is QUEUED."},
    )
    assert (await house.ask("e/redrive", "POST", b'{"inference_id": "x"}'))[0] == 404


async def test_a_body_that_is_no_text_is_refused(house):
    status, told = await house.ask("e/redrive", "POST", b'{"inference_id": "\xff"}')
    assert (status, told["message"][:20]) == (400, "The body is not what")


async def test_an_endpoint_that_takes_no_requests_takes_none_again(house):
    house.fail("a")
    change(house.server, status=EndpointStatus.FAILED)
    said = {"message": "Endpoint e takes no requests: it is Failed."}
    assert await house.ask("e/redrive", "POST") == (409, said)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"all": true}',
        b'{"limit": 0}',
        b'{"limit": 1001}',
        b" " * LARGEST_BODY_BYTES + b"{}",
    ],
)
async def test_bodies_that_cannot_be(house, body):
    house.fail("a")
    assert (await house.ask("e/redrive", "POST", body))[0] == 400
    assert len((await house.ask("e/failures"))[1]["failures"]) == 1
