"""The modern profile: the statuses that HTTP has for it, and a body that says more."""

import pytest

from sagehen.wire.errors import AwsError


@pytest.fixture
def house(make_house):
    return make_house(profile="modern")


def test_accepted(house):
    answered = house.post({"type": "model_a"})
    name = answered.body["jobName"]
    location = f"/dev/inference/{name}"
    assert answered.status == 202
    assert answered.headers["location"] == location
    assert answered.body == {
        "jobName": name,
        "type": "model_a",
        "status": "InProgress",
        "remaining": 0,
        "location": location,
    }
    assert house.job(name)["jobName"] == name


def test_refused(house):
    house.start()
    full = house.post({"type": "model_a"})
    assert (full.status, full.body["code"]) == (429, "LimitReached")
    assert (full.body["limit"], full.body["remaining"]) == (1, 0)
    assert int(full.headers["retry-after"]) > 0
    unknown = house.post({"type": "x"})
    assert (unknown.status, unknown.body["code"]) == (403, "UnsupportedType")
    malformed = house.post(b"[]")
    assert (malformed.status, malformed.body["code"]) == (400, "InvalidRequest")
    assert '"type"' in malformed.body["message"]
    house.breaks = AwsError("ValidationException", "Why.", 400)
    failed = house.post({"type": "model-b"})
    assert (failed.status, failed.body) == (500, {"code": "CreationFailed", "message": "Why."})


def test_a_key_of_another_request_is_422(house):
    house.post({"type": "model_a"}, idempotency_key="k")
    assert house.post({"type": "model-b"}, idempotency_key="k").status == 422
