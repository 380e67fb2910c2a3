"""Who is heard, and at which paths."""

import asyncio
import json

import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.asgi import BodyBudget
from sagehen.services.inference_service import service_store as inference_services

BODY = {"type": "model_a"}


@pytest.fixture
def closed(make_house):
    return make_house(require_api_key=True, limit=5)


def test_a_key_is_required(closed):
    key = closed.key("mine")
    for given in ({}, {"x_api_key": ""}, {"x_api_key": key + "x"}, {"x_api_key": "x" * 9999}):
        answered = closed.post(BODY, **given)
        assert (answered.status, answered.data) == (403, b'{"message": "Forbidden"}')
        assert answered.headers["x-amzn-errortype"] == "ForbiddenException"
    assert closed.post(BODY, x_api_key=key).status == 200


def test_it_comes_before_everything_else(closed):
    assert closed.post(b"no json").status == 403
    assert closed.request("GET", "/dev/inference").status == 403
    assert closed.request("GET", "/dev/inference/none").status == 403
    assert closed.request("DELETE", "/dev/inference/none").status == 403


def test_each_key_has_idempotency_keys_of_its_own(closed):
    mine, yours = closed.key("mine"), closed.key("yours")
    answers = [
        closed.post(BODY, x_api_key=key, idempotency_key="k").data for key in (mine, yours, mine)
    ]
    assert answers[0] == answers[2] != answers[1]


def test_without_keys_pages_of_other_sites_are_kept_out(house):
    page = {"origin": "https://elsewhere.example", "host": "127.0.0.1:9000"}
    assert house.post(BODY, **page).status == 403
    assert house.post(BODY, sec_fetch_site="cross-site").status == 403
    assert house.post(BODY).status == 200


async def test_requests_without_a_key_leave_room_for_the_others(make_house):
    """A body that does not end takes all that such requests may hold, and nothing else."""
    bodies = BodyBudget(4000)
    house = make_house(bodies=bodies)
    given = {"s3_bucket": "bucket", "white_list": "model_a"}
    await asyncio.to_thread(house.services.put, "keyed", json.dumps(given).encode())
    rest = asyncio.Event()
    unfinished = asyncio.create_task(house.ask(body=bytes(2000), rest=rest))
    while bodies.held_bytes < 2000:  # noqa: ASYNC110
        await asyncio.sleep(0)
    refused = await house.ask(body=BODY)
    assert (refused.status, "without an API key" in refused.body["errMsg"]) == (500, True)
    keyed = await house.ask(path="/keyed/inference", body=BODY, x_api_key=house.key("mine"))
    assert keyed.status == 200
    rest.set()
    assert (await unfinished).status == 501
    assert (await house.ask(body=BODY)).status == 200
    assert bodies.held_bytes == 0


def test_a_body_that_never_fits_into_memory_is_told_its_bound(make_house):
    house = make_house(bodies=BodyBudget(4000))
    answered = house.post(bytes(2001))
    assert (answered.status, "2000 bytes at most" in answered.body["errMsg"]) == (501, True)


def test_a_stage_that_no_service_has_is_told_of_where_there_is_another(house):
    answered = house.request("POST", "/prod/inference")
    assert (answered.status, answered.data) == (
        404,
        b'{"message": "No service has the stage prod."}',
    )
    with house.database.write() as connection:
        inference_services.delete_service(connection, "dev")
    assert asyncio.run(house.ask("POST", "/prod/inference")) is None


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", "/dev/inference", {"authorization": "AWS4-HMAC-SHA256 Credential=…"}),
        ("GET", "/dev/inference", {"query": "X-Amz-Signature=1&X-Amz-Algorithm=x"}),
        ("GET", "/dev/inference/a", {"query": "AWSAccessKeyId=1&Signature=x&Expires=1"}),
        ("GET", "/prod/inference", {}),
        ("POST", "/prod/inference/a", {}),
        ("POST", "/prod/inference", {"authorization": "AWS4-HMAC-SHA256 Credential=…"}),
        ("POST", "/dev/inferences", {}),
        ("POST", "/inference", {}),
        ("POST", "/dev/inference/a/b", {}),
        ("POST", "/", {}),
    ],
)
def test_what_is_signed_or_elsewhere_is_left_alone(house, method, path, more):
    headers = {name: value for name, value in more.items() if name != "query"}
    query = more.get("query", "")
    if "authorization" in headers:
        headers["authorization"] = headers["authorization"].encode("utf-8").decode("latin-1")
    assert asyncio.run(house.ask(method, path, query=query, **headers)) is None


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/dev/inference"), ("POST", "/dev/inference/x"), ("DELETE", "/dev/inference")],
)
def test_what_there_is_not_is_answered_as_api_gateway_does(house, method, path):
    answered = house.request(method, path)
    assert (answered.status, answered.body) == (403, {"message": "Missing Authentication Token"})


def test_another_authorization_header_is_no_signature(house):
    assert house.post(BODY, authorization="Bearer x").status == 200


def test_requests_are_counted_by_what_became_of_them(closed):
    key = closed.key("mine")
    for body in (BODY, {"type": "x"}, b"", BODY):
        closed.post(body, x_api_key=key)
    closed.post(BODY)
    assert closed.counts.measured()["InferenceRequests"] == {
        ("dev", "model_a", "Accepted"): 2,
        ("dev", "", "Unsupported"): 1,
        ("dev", "", "Malformed"): 1,
        ("dev", "", "Forbidden"): 1,
    }


def test_a_state_that_is_away_is_told(house, monkeypatch):
    def away(*_):
        raise Unavailable("The state is busy.")

    monkeypatch.setattr(house.app, "_service", away)
    answered = house.post(BODY)
    assert (answered.status, answered.body) == (503, {"message": "The state is busy."})


def test_what_nobody_foresaw_is_500_in_the_words_of_the_contract(house, monkeypatch, caplog):
    monkeypatch.setattr(house.slots, "admit", lambda *_: 1 // 0)
    answered = house.post(BODY)
    assert (answered.status, answered.body["status"]) == (500, 500)
    assert "ZeroDivisionError" not in answered.body["errMsg"]
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    assert house.post(BODY).status == 200
