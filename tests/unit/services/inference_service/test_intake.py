"""Idempotency-Key: the same request twice is one job."""

import asyncio

import pytest

from sagehen.base.errors import CommitUnknown, StateFull
from sagehen.services.s3.storage.records import ListingQuery
from sagehen.state.group_commit import GroupCommit

BODY = {"type": "model_a", "parameters": {"a": 1}}


@pytest.fixture
def state(any_database):
    return any_database


def count(house):
    return len(house.request("GET", "/dev/inference").body["jobs"])


def test_the_same_answer_and_no_second_job(make_house):
    house = make_house(limit=3)
    first = house.post(BODY, idempotency_key="k")
    house.post(BODY, idempotency_key="other")
    again = house.post(BODY, idempotency_key="k")
    assert again.data == first.data
    assert again.headers["location"] == first.headers["location"]
    assert count(house) == 2
    house.post(BODY)
    assert count(house) == 3


def test_also_when_no_slot_is_left_and_the_job_has_ended(house):
    first = house.post(BODY, idempotency_key="k")
    assert house.post(BODY, idempotency_key="k").data == first.data
    house.end(house.newest())
    assert house.post(BODY, idempotency_key="k").data == first.data


def test_all_at_once(make_house):
    house = make_house(limit=3)

    async def many():
        asked = (house.ask(body=BODY, idempotency_key="k") for _ in range(30))
        return await asyncio.gather(*asked)

    answers = {one.data for one in asyncio.run(many())}
    assert len(answers) == 1
    assert count(house) == 1


def test_all_at_once_with_an_input_that_is_put_by_itself(make_house):
    house = make_house(limit=3)

    async def many():
        body = {**BODY, "input": "x" * 50_000}
        asked = (house.ask(body=body, idempotency_key="k") for _ in range(8))
        return await asyncio.gather(*asked)

    assert len({one.data for one in asyncio.run(many())}) == 1
    assert count(house) == 1
    found = house.objects.list_page("bucket", ListingQuery(limit=10)).objects
    assert [one.key for one in found] == [f"input/{house.newest()}/input.txt"]


@pytest.mark.parametrize(
    ("error", "kept"), [(CommitUnknown("unknown"), True), (StateFull("full"), False)]
)
def test_input_stays_unless_certainly_no_job_was_made(house, monkeypatch, error, kept):
    join = GroupCommit.join

    async def lose_answer(writes, admit):
        if "inline" in admit.keywords:
            return await join(writes, admit)  # which finds that the input needs a file
        raise error

    monkeypatch.setattr(GroupCommit, "join", lose_answer)
    house.post({**BODY, "input": "x" * 50_000})
    found = house.objects.list_page("bucket", ListingQuery(limit=10)).objects
    assert bool(found) is kept


def test_another_body_is_refused(house):
    house.post(BODY, idempotency_key="k")
    answered = house.post({"type": "model-b"}, idempotency_key="k")
    assert (answered.status, answered.body["status"]) == (501, 501)
    assert "another body" in answered.body["errMsg"]


def test_a_refused_request_is_not_remembered(house):
    name = house.start()
    assert house.post(BODY, idempotency_key="k").status == 502
    house.end(name)
    assert house.post(BODY, idempotency_key="k").status == 200


def test_it_is_forgotten_in_time(make_house):
    house = make_house(idempotency_seconds=100, limit=5)
    house.post(BODY, idempotency_key="k")
    house.clock.seconds += 101
    with house.database.write() as connection:
        house.housekeeping.sweep(connection, "dev")
    house.post(BODY, idempotency_key="k")
    assert count(house) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\tb"])
def test_a_bad_key(house, key):
    answered = house.post(BODY, idempotency_key=key)
    assert answered.body["status"] == 501
    assert "1 to 255" in answered.body["errMsg"]
