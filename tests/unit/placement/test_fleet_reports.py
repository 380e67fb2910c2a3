"""Reports of some instances change what the fleet knows as reports of all would."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.base.errors import Unavailable
from sagehen.frame.container_specs import InstanceState
from sagehen.frame.job_specs import JobReport
from support.fleet_cluster import Cluster
from support.node_agents import attempt_spec, variant_spec

NODES = st.sampled_from(["a", "b", "c"])
INSTANCES = st.sampled_from(["i-1", "i-2", "i-3"])
STATES = st.sampled_from(list(InstanceState))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("has"), NODES, INSTANCES, STATES),
        st.tuples(st.just("ends"), NODES, INSTANCES, STATES),
        st.tuples(st.just("put"), NODES, INSTANCES, STATES),
        st.tuples(st.just("delete"), NODES, INSTANCES, STATES),
        st.tuples(st.just("job"), NODES, st.sampled_from(["j-1", "j-2"]), STATES),
        st.tuples(st.just("dies"), NODES, INSTANCES, STATES),
        st.tuples(st.just("goes on"), NODES, INSTANCES, STATES),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_what_some_reports_change_is_what_all_reports_say(events):
    """After each report: settling everything anew changes nothing."""

    async def run(folder) -> None:
        cluster = Cluster(folder)
        await cluster.begin("a", "b", "c")
        await cluster.pass_time(1)
        for event, name, key, state in events:
            node = cluster.agents[name]
            if event == "has":
                node.has(variant_spec(key), state)
            elif event == "ends" and key in node.states:
                node.end_instance(key)
            elif event == "put":
                with contextlib.suppress(Unavailable):
                    await cluster.fleet.put_instance(variant_spec(key))
            elif event == "delete":
                with contextlib.suppress(Unavailable):
                    await cluster.fleet.delete_instance(key)
            elif event == "job":
                node.job_specs[key] = attempt_spec(key)
                node.set_job(JobReport(attempt_id=key))
            elif event == "dies":
                node.die()
                await cluster.pass_time(5)
            elif event == "goes on":
                node.restart()
                await cluster.pass_time(1)
            await cluster.settle()
            if event not in ("put", "delete"):  # whose notes the next look at all nodes corrects
                known = known_of(cluster.fleet)
                cluster.fleet._settle()
                assert known_of(cluster.fleet) == known
            cluster.fleet._settle()
        await cluster.fleet.stand_down()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def known_of(fleet):
    assignments, reports = fleet._assignments, fleet._reports
    return (
        dict(reports.instances),
        dict(reports.jobs),
        {key: (each.node_id, each.is_ending) for key, each in assignments._nodes.items()},
        assignments.workloads.keys() | set(),
    )
