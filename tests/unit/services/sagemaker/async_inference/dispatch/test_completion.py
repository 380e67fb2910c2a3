"""The end of a request: state, object and notice in one transaction, and its metrics after."""

import pytest

from sagehen.base.retry import RetryPolicy
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.store import SmallObject
from sagehen.services.sagemaker.async_inference import lease_store as leases
from sagehen.services.sagemaker.async_inference.dispatch import completion
from sagehen.services.sagemaker.async_inference.dispatch.completion import (
    AsyncEnding,
    EndedAttempt,
    Endings,
)
from sagehen.services.sagemaker.async_inference.records import AsyncOutcome, AsyncState

SUCCESS = AsyncOutcome(state=AsyncState.SUCCEEDED, status=200, location="s3://outs/x")
FAILURE = AsyncOutcome(state=AsyncState.FAILED, failure_reason="ClientError: no")


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def endings(bench, recorded) -> Endings:
    record = lambda name, about, value: recorded.append((name, value))  # noqa: E731
    retry = RetryPolicy(bench.clock, 0)
    return Endings(bench.writes, bench.objects, retry, record, "us-east-1", bench.clock)


@pytest.fixture
def leased(bench):
    def make():
        bench.enqueue(b"1")
        with bench.database.write() as connection:
            now = bench.clock.now()
            (queued,) = leases.lease(connection, "End", 1, "w", now, now + 30)
        return queued

    return make


async def test_an_end_is_written_once(bench, endings: Endings, leased, recorded) -> None:
    queued = leased()
    bench.clock.seconds += 2
    ending = AsyncEnding(SUCCESS, model_seconds=0.5, download_seconds=0.25)
    assert await endings.end(queued, ending) is EndedAttempt.DONE
    assert bench.get(queued.sequence).outcome == SUCCESS
    values = dict(recorded)
    assert (values["ModelLatency"], values["RequestDownloadLatency"]) == (500_000, 250_000)
    assert (values["TotalProcessingTime"], values["InvocationsProcessed"]) == (2000, 1)
    assert "InvocationFailures" not in values
    recorded.clear()
    assert await endings.end(queued, AsyncEnding(FAILURE)) is EndedAttempt.TAKEN
    assert recorded == [], "another worker's request has no metrics here"


async def test_a_notice_without_its_topic_is_counted(
    endings: Endings, leased, recorded, monkeypatch
) -> None:
    monkeypatch.setattr(completion, "publish", lambda connection, notice: False)
    ending = AsyncEnding(FAILURE, failed_by=("ExpiredRequests",))
    assert await endings.end(leased(), ending) is EndedAttempt.DONE
    assert recorded == [
        ("ExpiredRequests", 1),
        ("InvocationFailures", 1),
        ("NotificationFailures", 1),
    ]


async def test_a_small_object_is_written_with_the_end(bench, endings: Endings, leased) -> None:
    queued = leased()
    small = SmallObject("outs", "x", b"answer", Attributes(headers={}))
    assert await endings.end(queued, AsyncEnding(SUCCESS), small) is EndedAttempt.DONE
    assert bench.objects.head("outs", "x").size == 6


async def test_without_its_bucket_nothing_is_written(bench, endings: Endings, leased) -> None:
    queued = leased()
    small = SmallObject("none", "x", b"answer", Attributes(headers={}))
    assert await endings.end(queued, AsyncEnding(SUCCESS), small) is EndedAttempt.NOT_STORED
    assert bench.get(queued.sequence).state is AsyncState.LEASED
