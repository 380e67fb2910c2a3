"""Jobs on the nodes of a cluster: those of a lost node, and those that wait for room."""

import asyncio

import pytest

from sagehen.base.errors import NotFound, Unavailable
from sagehen.frame.job_specs import JobOutcome, JobReport
from support.fleet_cluster import SMALL
from support.node_agents import attempt_spec


async def test_jobs_of_a_lost_node_are_reported_until_it_is_fenced(cluster):
    await cluster.begin("a", "b")
    await cluster.fleet.put_job(attempt_spec("j-1"))
    await cluster.settle()
    (lost,) = cluster.where("j-1")
    cluster.agents[lost].hang()
    await cluster.pass_time(6)
    assert set(await cluster.attempts()) == {"j-1"}
    for call in (cluster.fleet.stop_job("j-1"), cluster.fleet.put_job(attempt_spec("j-1"))):
        with pytest.raises(Unavailable):
            await call
    await cluster.pass_time(4)
    assert await cluster.attempts() == {}
    await cluster.fleet.put_job(attempt_spec("j-2"))
    await cluster.settle()
    assert cluster.where("j-2") == {"a", "b"} - {lost}


async def test_an_unanswered_put_of_a_job_is_repeated_to_the_same_node(cluster):
    await cluster.begin("a", "b")
    (chosen,) = [
        name
        for name in ("a", "b")
        if cluster.fleet._assignments.choose("j-1", cluster_workload(), cluster.fleet.nodes) == name
    ]
    cluster.agents[chosen].hang()
    putting = asyncio.create_task(cluster.fleet.put_job(attempt_spec("j-1")))
    await cluster.pass_time(5)
    with pytest.raises(Unavailable):
        await putting
    with pytest.raises(Unavailable):
        await cluster.fleet.put_job(attempt_spec("j-1"))
    await cluster.pass_time(5)
    await cluster.fleet.put_job(attempt_spec("j-1"))
    await cluster.settle()
    assert cluster.where("j-1") == {"a", "b"} - {chosen}


def cluster_workload():
    from sagehen.placement.workloads import workload_of_job

    return workload_of_job(attempt_spec("j-1"))


async def test_a_job_waits_for_room_without_a_gap_in_its_reports(cluster):
    await cluster.begin("a", resources=SMALL)
    await cluster.fleet.put_job(attempt_spec("j-1", instance_count=2))
    await cluster.fleet.put_job(attempt_spec("j-2"))
    await cluster.fleet.put_job(attempt_spec("j-3"))
    await cluster.settle()
    assert cluster.where("j-2") == set()
    assert (await cluster.attempts())["j-2"].waits_for_gpus
    await cluster.fleet.stop_job("j-3")
    assert "j-3" not in await cluster.attempts()
    cluster.agents["a"].set_job(JobReport(attempt_id="j-1", outcome=JobOutcome.COMPLETED))
    for _ in range(30):
        assert "j-2" in await cluster.attempts()
        await asyncio.sleep(0)
    assert cluster.where("j-2") == {"a"}
    assert not (await cluster.attempts())["j-2"].waits_for_gpus
    await cluster.fleet.delete_job("j-1")
    await cluster.settle()
    assert set(await cluster.attempts()) == {"j-2"}
    await cluster.fleet.delete_job("j-1")
    with pytest.raises(NotFound):
        await cluster.fleet.stop_job("j-1")
