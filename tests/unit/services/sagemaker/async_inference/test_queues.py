"""What operators see and change of asynchronous queues, without the paths in front of it."""

import pytest

from sagehen.base.errors import Conflict, NotFound
from sagehen.services.sagemaker.async_inference import queues as queues_module
from sagehen.services.sagemaker.async_inference import request_store
from sagehen.services.sagemaker.async_inference.queues import AsyncQueues
from sagehen.services.sagemaker.async_inference.records import QueueMode
from support.endpoints import in_service
from support.fixtures.async_queue import request

PLAN = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}


@pytest.fixture
def changed():
    return []


@pytest.fixture
def queues(server, changed) -> AsyncQueues:
    server.model("m")
    server.config("plain")
    server.config("c", AsyncInferenceConfig=PLAN)
    in_service(server)
    in_service(server, "real-time", "plain")
    return AsyncQueues(server.database, server.clock, changed.append)


@pytest.fixture
def enqueue(server):
    def put(*numbers, **fields):
        requests = [request(number, endpoint_name="e", **fields) for number in numbers]
        with server.database.write() as connection:
            return request_store.enqueue(connection, [(one, None) for one in requests])

    return put


def test_a_mode_is_stored_and_announced(queues, changed) -> None:
    assert queues.set_mode("e", QueueMode.PAUSED)["mode"] == "PAUSED"
    assert queues.queue("e")["mode"] == "PAUSED"
    assert changed == ["e"]


def test_only_asynchronous_endpoints_have_queues(queues, changed) -> None:
    with pytest.raises(NotFound, match="There is no endpoint gone"):
        queues.queue("gone")
    with pytest.raises(NotFound, match="real-time is not asynchronous"):
        queues.set_mode("real-time", QueueMode.PAUSED)
    with pytest.raises(NotFound, match="There is no endpoint gone"):
        queues.failures("gone", after=0, limit=10)
    assert changed == []


def test_only_the_newest_requests_of_a_label_are_counted(queues, enqueue, monkeypatch) -> None:
    monkeypatch.setattr(queues_module, "MAX_POSITIONS", 2)
    enqueue(0, 1, 2, inference_id="same")
    described = queues.requests("e", "same")["requests"]
    assert [one["position"] for one in described] == [2, 1, None]


def test_what_is_not_known_says_how_long_it_would_be(queues) -> None:
    with pytest.raises(NotFound, match="async_history_seconds"):
        queues.requests("e", "gone")


def test_a_cancelled_request_is_ended_by_the_dispatcher(queues, enqueue, changed) -> None:
    enqueue(0)
    (described,) = queues.cancel("e", "id 0")["requests"]
    assert (described["cancel_requested"], described["state"]) == (True, "QUEUED")
    assert changed == ["e"]


def test_only_failed_requests_are_redriven(queues, enqueue, changed) -> None:
    enqueue(0)
    with pytest.raises(Conflict, match="has not failed: it is QUEUED"):
        queues.redrive("e", "id 0", 0, 10)
    assert queues.redrive("e", None, 0, 10) == {"redriven": 0, "next": None}
    assert changed == ["e"]
