"""How long a node goes on without control."""

import asyncio

import pytest

from sagehen.agent.control_lease import ControlLease, OldEpoch
from sagehen.base.errors import Unavailable
from sagehen.frame.nodes import LeaseRequest
from support.clock import SteppedClock
from support.state import settings_of


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def lease(clock, tmp_path):
    return ControlLease("run-1", tmp_path / "epoch", 600, clock)


def beat(lease, answered_at=None, seconds=8, run_id="run-1"):
    return lease.renew(LeaseRequest(seconds=seconds, run_id=run_id, answered_at=answered_at))


def test_jobs_run_once_control_has_heard_an_answer(lease, clock):
    with pytest.raises(Unavailable, match="no lease"):
        lease.require_jobs_allowed()
    first = beat(lease)
    assert not lease.lets_jobs_run
    clock.advance(1)
    beat(lease, first.answered_at)
    lease.require_jobs_allowed()


def test_a_lease_counts_from_the_answer_that_control_has_heard(lease, clock):
    heard = beat(lease).answered_at
    clock.advance(5)
    beat(lease, heard)
    clock.advance(2.9)
    assert lease.lets_jobs_run
    # What was sent long ago and arrives now renews nothing.
    beat(lease, heard)
    clock.advance(0.2)
    assert not lease.lets_jobs_run


def test_an_answer_of_an_earlier_agent_or_of_the_future_is_worth_nothing_more(lease, clock):
    beat(lease, 0.0, run_id="run-0")
    assert not lease.lets_jobs_run
    beat(lease, 1e9)
    clock.advance(8)
    assert not lease.lets_jobs_run


def test_each_new_leader_is_told(lease):
    epochs = []
    lease.on_new_epoch = epochs.append
    for epoch in (2, 2, 5):
        lease.check_epoch(epoch)
    assert epochs == [2, 5]


def test_control_of_an_earlier_epoch_is_refused_even_after_a_restart(lease, clock, tmp_path):
    lease.check_epoch(3)
    lease.check_epoch(3)
    with pytest.raises(OldEpoch, match="epoch 3 leads"):
        lease.check_epoch(2)
    again = ControlLease("run-2", tmp_path / "epoch", 600, clock)
    with pytest.raises(OldEpoch):
        again.check_epoch(2)
    again.check_epoch(4)


async def test_jobs_end_with_the_lease_and_instances_when_cut_off(lease, clock):
    calls = []
    watch = asyncio.create_task(
        lease.watch(lambda: calls.append("jobs"), lambda: calls.append("instances"))
    )
    heard = beat(lease).answered_at
    beat(lease, heard)
    for at in range(1, 12):
        await clock.sleeper(1.0)
        clock.advance(1)
        await asyncio.sleep(0)
        assert calls == (["jobs"] if at >= 8 else []), at
    # A renewal ends both; the next loss is told again.
    beat(lease, clock.monotonic())
    await clock.sleeper(1.0)
    clock.advance(1)
    await clock.sleeper(1.0)
    clock.advance(7)
    await clock.sleeper(1.0)
    assert calls == ["jobs", "jobs"]
    clock.advance(592)
    await clock.sleeper(1.0)
    assert calls == ["jobs", "jobs", "instances"]
    clock.advance(600)
    await clock.sleeper(1.0)
    assert calls == ["jobs", "jobs", "instances"]
    watch.cancel()


async def test_instances_outlive_ten_minutes_without_control_and_its_return(clock, tmp_path):
    """A leader needs a moment after the database is back."""
    cut_off = settings_of(tmp_path).cluster_cut_off_seconds
    lease = ControlLease("run-1", tmp_path / "epoch", cut_off, clock)
    stopped = []
    watch = asyncio.create_task(lease.watch(lambda: None, lambda: stopped.append("instances")))
    beat(lease)
    for _ in range(600 + 30):
        await asyncio.sleep(0)
        clock.advance(1)
    assert not stopped
    watch.cancel()
