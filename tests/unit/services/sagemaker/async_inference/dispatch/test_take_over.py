"""The dispatcher of a control that takes over, or that has lost the lease on dispatching."""

import asyncio

import pytest
from sqlalchemy import Connection

from sagehen.services.sagemaker.async_inference.dispatch.claims import Claimed, Claims
from sagehen.services.sagemaker.async_inference.records import AsyncState
from sagehen.state.leases import LeaseLost


def claims(bench, check, fresh: bool = False) -> Claims:
    now = bench.clock.now()
    return Claims(
        free={"End": 2},
        capacity=10,
        first=0,
        worker="here",
        now=now,
        until=now + 30,
        read=lambda connection, queued: {},
        fresh=fresh,
        check=check,
    )


async def claim(bench, check, **more) -> Claimed:
    return await bench.writes.join(claims(bench, check, **more))


async def test_claims_are_checked_only_where_they_change_something(bench) -> None:
    checks: list[Connection] = []
    bench.serve(v=[])
    await claim(bench, checks.append)
    assert checks == []
    bench.enqueue(b"1")
    claimed = await claim(bench, checks.append)
    assert (len(claimed.to_send), len(checks)) == (1, 1)


async def test_an_old_leader_leases_nothing(bench) -> None:
    def lost(_: Connection) -> None:
        raise LeaseLost("Another leads.")

    bench.serve(v=[])
    sequence = bench.enqueue(b"1")
    with pytest.raises(LeaseLost):
        await claim(bench, lost)
    assert bench.get(sequence).state is AsyncState.QUEUED


async def test_who_takes_over_need_not_wait_for_the_leases_of_the_lost_worker(bench) -> None:
    container = await bench.container()
    bench.serve()
    gate = container.hold(b"late")
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    lost, bench.dispatcher = bench.dispatcher, bench.new_dispatcher("there")
    await lost._lease.let_go()
    lost_tasks = list(lost._tasks.values())
    container.answer = container.double
    await bench.work()
    assert (bench.get(sequence).state, bench.get(sequence).attempt) == (AsyncState.SUCCEEDED, 2)

    await lost.turn()
    gate.set()
    await asyncio.gather(*lost_tasks, return_exceptions=True)
    assert all(task.cancelled() for task in lost_tasks), "another has its requests"
    assert bench.get(sequence).attempt == 2
    assert len(bench.notices) <= 1
