"""Requests come into the queue together, and none behind the back of its endpoint's deletion."""

import asyncio

import msgspec
import pytest
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import StateFull
from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference import intake as async_intake
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.intake import (
    AsyncIntake,
    NewRequest,
    promise_output,
)
from sagehen.services.sagemaker.async_inference.records import AsyncState, QueueMode
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.group_commit import GroupCommit
from sagehen.wire.errors import AwsError
from support.endpoints import change, in_service, settle, weigh

ACCOUNT = "000000000000"
PLAN = {"OutputConfig": {"S3OutputPath": "s3://bucket/out", "S3FailurePath": "s3://bucket/bad"}}


class House:
    """An intake over a test's state."""

    def __init__(self, server):
        self.server = server
        self.database = server.database
        self.writes = GroupCommit(server.database)
        self.queued = []
        self.intake = AsyncIntake(self.writes, ACCOUNT, self.queued.append)
        self.made = 0

    async def put(self, name="e", **params):
        self.made += 1
        params = {"EndpointName": name, "InputLocation": "s3://bucket/in", **params}
        new = NewRequest(f"id-{self.made}", f"label-{self.made}", 1000.0, params)
        return await self.intake.put(new)

    async def refusal(self, name="e", **params):
        with pytest.raises(AwsError) as caught:
            await self.put(name, **params)
        return caught.value

    def found(self, label="label-1", name="e"):
        with self.database.read() as connection:
            return async_requests.find(connection, name, label)

    def backlog(self, name="e"):
        with self.database.read() as connection:
            return async_requests.backlog(connection, name)


@pytest.fixture
def house(server):
    server.model("m")
    server.config("plain")
    server.config("c", AsyncInferenceConfig=PLAN)
    in_service(server)
    house = House(server)
    yield house
    house.writes.close()


async def test_a_request_is_queued_as_it_was_asked(house):
    accepted = await house.put(
        ContentType="text/csv",
        Accept="text/plain",
        CustomAttributes="a",
        RequestTTLSeconds=60,
        InvocationTimeoutSeconds=5,
        S3OutputPathExtension="x",
        Filename="y.z",
    )
    (row,) = house.found()
    assert row.request == accepted
    assert msgspec.to_builtins(accepted) == {
        "request_id": "id-1",
        "inference_id": "label-1",
        "endpoint_name": "e",
        "received_at": 1000.0,
        "expires_at": 1060.0,
        "timeout_seconds": 5,
        "output": {
            "location": "s3://bucket/out/x/y.z",
            "failure_location": "s3://bucket/bad/x/y-error.z",
        },
        "input_location": "s3://bucket/in",
        "content_type": "text/csv",
        "accept": "text/plain",
        "custom_attributes": "a",
    }
    assert row.state is AsyncState.QUEUED
    assert house.queued == ["e"]


async def test_what_is_not_said_has_sagemakers_defaults(house):
    accepted = await house.put()
    assert (accepted.expires_at - accepted.received_at, accepted.timeout_seconds) == (21_600, 900)
    assert accepted.output.location == "s3://bucket/out/id-1.out"


async def test_an_inline_body_is_kept_beside_it(house):
    await house.intake.put(
        NewRequest("r", "label", 1.0, {"EndpointName": "e", "Body": b"\0\xff", "ContentType": "x"})
    )
    (row,) = house.found("label")
    assert row.request.input_location is None
    with house.database.read() as connection:
        assert async_requests.body(connection, row.sequence) == b"\0\xff"


async def test_the_same_inference_id_may_come_again(house):
    for number in range(2):
        await house.intake.put(
            NewRequest(f"r{number}", "same", 1.0, {"EndpointName": "e", "Body": b"1"})
        )
    assert [one.request.request_id for one in house.found("same")] == ["r1", "r0"]


async def test_many_share_a_transaction_and_keep_their_order(house, monkeypatch):
    groups = []
    enqueue = async_requests.enqueue
    monkeypatch.setattr(
        async_requests,
        "enqueue",
        lambda connection, requests: groups.append(len(requests)) or enqueue(connection, requests),
    )
    await asyncio.gather(*(house.put() for _ in range(600)))
    assert sum(groups) == 600
    assert len(groups) < 10
    assert max(groups) <= async_intake.MAX_BATCH
    rows = [house.found(f"label-{number}")[0].sequence for number in range(1, 601)]
    assert rows == sorted(rows)
    assert house.backlog() == (600, 0)


async def test_who_is_refused_does_not_hold_up_the_others(house):
    in_service(house.server, "real-time", "plain")
    outcomes = await asyncio.gather(
        house.put(), house.put("real-time"), house.put("gone"), house.put(), return_exceptions=True
    )
    assert [getattr(one, "code", "queued") for one in outcomes] == [
        "queued",
        "ValidationError",
        "ValidationError",
        "queued",
    ]
    assert outcomes[1].message == (
        "Endpoint real-time is not asynchronous (its endpoint configuration has no "
        "AsyncInferenceConfig). Call InvokeEndpoint."
    )
    assert outcomes[2].message == f"Endpoint gone of account {ACCOUNT} not found."
    assert house.backlog() == (2, 0)
    assert set(house.queued) == {"e"}


@pytest.mark.parametrize("status", ["Creating", "Failed", "Deleting"])
async def test_an_endpoint_that_does_not_serve_takes_none(house, status):
    change(house.server, status=EndpointStatus(status))
    assert "not found" in (await house.refusal()).message
    assert house.backlog() == (0, 0)


async def test_one_that_is_updated_does_and_promises_what_serves(house):
    output = {"OutputConfig": {"S3OutputPath": "s3://bucket/other"}}
    house.server.config("next", AsyncInferenceConfig=output)
    house.server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    assert (await house.put()).output.location == "s3://bucket/out/id-1.out"
    settle(house.server)
    assert (await house.put()).output.location == "s3://bucket/other/id-2.out"


async def test_one_without_instances_does(house):
    weigh(house.server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 0})
    settle(house.server)
    await house.put()
    assert house.backlog() == (1, 0)


async def test_the_name_has_its_case(house):
    assert "not found" in (await house.refusal("E")).message


async def test_one_that_is_drained_refuses_and_one_that_is_paused_does_not(house):
    with house.database.write() as connection:
        async_requests.set_mode(connection, "e", QueueMode.DRAINING)
    refused = await house.refusal()
    assert (refused.code, refused.status) == ("ServiceUnavailable", 503)
    assert refused.message.endswith("sagehen async resume e.")
    with house.database.write() as connection:
        async_requests.set_mode(connection, "e", QueueMode.PAUSED)
    await house.put()


async def test_what_waits_is_abandoned_with_its_endpoint_and_nothing_later(house):
    await house.put()
    house.server.DeleteEndpoint(EndpointName="e")
    with house.database.read() as connection:
        queue = async_requests.endpoint_queue(connection, "e")
    (row,) = house.found()
    assert queue.abandoned_to == row.sequence


async def test_inline_bodies_that_wait_have_a_bound(house, monkeypatch):
    monkeypatch.setattr(async_intake, "MAX_WAITING_BYTES", 250)
    given = {"InputLocation": None, "Body": bytes(100)}
    outcomes = await asyncio.gather(*(house.put(**given) for _ in range(3)), return_exceptions=True)
    assert [getattr(one, "code", "queued") for one in outcomes] == [
        "queued",
        "queued",
        "ServiceUnavailable",
    ]
    await house.put(**given)


@pytest.mark.parametrize(
    "fault", [StateFull("full"), OperationalError("", {}, Exception("the connection is lost"))]
)
async def test_a_database_in_trouble_fails_all_who_wait_and_only_them(house, monkeypatch, fault):
    def fail(connection, requests):
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(async_requests, "enqueue", fail)
        outcomes = await asyncio.gather(*(house.put() for _ in range(3)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {type(fault)}
    assert house.queued == []
    await house.put()
    assert house.backlog() == (1, 0)


async def test_who_leaves_while_it_waits_does_not_hold_up_the_others(house):
    leaving = asyncio.ensure_future(house.put())
    staying = asyncio.ensure_future(house.put())
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).request_id == "id-2"


HTTPS = "https://bucket.s3.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("path", "extension", "filename", "location"),
    [
        ("s3://bucket", None, None, "s3://bucket/id.out"),
        ("s3://bucket/", None, None, "s3://bucket/id.out"),
        ("s3://bucket/out", None, None, "s3://bucket/out/id.out"),
        ("s3://bucket/out/", None, None, "s3://bucket/out/id.out"),
        ("s3://bucket/out//", None, None, "s3://bucket/out//id.out"),
        ("s3://bucket/out", "a/b", None, "s3://bucket/out/a/b/id.out"),
        ("s3://bucket/out/", "/a/", None, "s3://bucket/out/a/id.out"),
        ("s3://bucket/out/", "/", None, "s3://bucket/out/id.out"),
        ("s3://bucket/out", None, "x.json", "s3://bucket/out/x.json"),
        ("s3://bucket/out", "a", "x", "s3://bucket/out/a/x"),
        (HTTPS, None, None, HTTPS + "/id.out"),
        (HTTPS + "/a%20b/", "c", "x.y", HTTPS + "/a%20b/c/x.y"),
    ],
)
def test_where_the_answer_will_be(path, extension, filename, location):
    output = promise_output(AsyncPlan(output_path=path), "id", extension, filename)
    assert (output.location, output.failure_location) == (location, None)


@pytest.mark.parametrize(
    ("extension", "filename", "location"),
    [
        (None, None, "s3://bucket/failed/id-error.out"),
        ("a", None, "s3://bucket/failed/a/id-error.out"),
        (None, "x.json", "s3://bucket/failed/x-error.json"),
        (None, "x", "s3://bucket/failed/x-error"),
        (None, "x.", "s3://bucket/failed/x-error."),
    ],
)
def test_where_a_failure_will_be(extension, filename, location):
    plan = AsyncPlan(output_path="s3://bucket/out", failure_path="s3://bucket/failed")
    assert promise_output(plan, "id", extension, filename).failure_location == location


def test_who_is_told_is_as_the_plan_has_it():
    plan = AsyncPlan(
        output_path="s3://bucket",
        success_topic="good",
        error_topic="bad",
        include_response_in=("SUCCESS_NOTIFICATION_TOPIC",),
    )
    output = promise_output(plan, "id")
    assert (output.success_topic, output.error_topic) == ("good", "bad")
    assert output.include_response_in == ("SUCCESS_NOTIFICATION_TOPIC",)
