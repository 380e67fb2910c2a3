"""All nodes of a cluster, seen as one agent."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.container_specs import InstanceOwner, InstanceState
from sagehen.frame.job_specs import JobOutcome, JobReport
from sagehen.frame.nodes import Resources
from sagehen.frame.routes import NodeRoute, RouteTable
from sagehen.placement.fleet import Fleet
from support.clock import SteppedClock
from support.fleet import CONTAINERS
from support.node_agents import FakeNode, attempt_spec, node_record, variant_spec

SMALL = Resources(cpus=4, memory_bytes=16 * 2**30)
"""room for two instances"""


class Cluster:
    """A fleet with its nodes, and short words for what tests do with them."""

    def __init__(self, tmp_path):
        self.clock = SteppedClock()
        self.routes_file = tmp_path / "routes.json"
        self.agents: dict[str, FakeNode] = {}
        self.fleet = self.make_fleet()
        self.records = {}

    def make_fleet(self):
        return Fleet(
            lambda record: self.agents[record.node_id],
            "a",
            self.routes_file,
            100,
            self.clock,
            "a:4",
        )

    async def begin(self, *names, **members):
        for name in names:
            self.agents.setdefault(name, FakeNode(name, self.clock))
            self.records[name] = node_record(name, **members)
        await self.set_nodes()
        await self.settle()

    async def set_nodes(self):
        await self.fleet.set_nodes(list(self.records.values()))

    async def change(self, name, **members):
        self.records[name] = node_record(name, **members)
        await self.set_nodes()
        await self.settle()

    async def settle(self):
        for _ in range(30):
            await asyncio.sleep(0)

    async def pass_time(self, seconds):
        for _ in range(round(seconds * 4)):
            await self.settle()
            self.clock.advance(0.25)
        await self.settle()
        await self.set_nodes()
        await self.settle()

    async def put(self, *specs):
        for spec in specs:
            await self.fleet.put_instance(spec)
        await self.settle()

    async def reports(self):
        listed = await self.fleet.instances()
        return {report.instance_id: report for report in listed.instances}

    async def places(self):
        return {key: report.node_id for key, report in (await self.reports()).items()}

    async def attempts(self):
        return {job.attempt_id: job for job in (await self.fleet.jobs()).jobs}

    def where(self, key):
        return {
            name
            for name, agent in self.agents.items()
            if key in agent.states or key in agent.job_reports
        }


@pytest.fixture
async def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    await cluster.fleet.stand_down()
    assert all(agent.closed for agent in cluster.agents.values())


async def test_nothing_is_known_before_every_node_has_reported_or_is_lost(cluster):
    with pytest.raises(Unavailable):
        await cluster.fleet.instances()
    cluster.agents["b"] = FakeNode("b", cluster.clock)
    cluster.agents["b"].die()
    await cluster.begin("a", "b")
    for call in (cluster.fleet.instances(), cluster.fleet.put_instance(variant_spec("i-1"))):
        with pytest.raises(Unavailable, match="Not every node"):
            await call
    await cluster.pass_time(4.5)
    assert await cluster.reports() == {}
    with pytest.raises(Unavailable, match="may still run"):
        await cluster.fleet.jobs()
    await cluster.pass_time(5)
    assert await cluster.attempts() == {}


async def test_instances_are_spread_and_reported_with_their_nodes(cluster):
    await cluster.begin("a", "b", "c")
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3)))
    places = await cluster.places()
    assert set(places.values()) == {"a", "b", "c"}
    # A put that is repeated goes to the same node.
    await cluster.put(variant_spec("i-1"))
    assert cluster.where("i-1") == {places["i-1"]}
    await cluster.fleet.delete_instance("i-1")
    await cluster.settle()
    assert (await cluster.reports())["i-1"].state is InstanceState.STOPPING
    cluster.agents[places["i-1"]].end_instance("i-1")
    await cluster.settle()
    assert set(await cluster.places()) == {"i-0", "i-2"}
    await cluster.fleet.delete_instance("i-1")


async def test_all_nodes_that_answer_prepare_for_starts(cluster):
    await cluster.begin("a", "b")
    cluster.agents["b"].die()
    await cluster.pass_time(10)
    await cluster.fleet.keep_warm(["python"])
    assert ("warm", "python") in cluster.agents["a"].calls
    assert ("warm", "python") not in cluster.agents["b"].calls


async def test_a_long_poll_ends_with_a_change_and_not_without(cluster):
    await cluster.begin("a")
    listed = await cluster.fleet.instances()
    polling = asyncio.create_task(cluster.fleet.instances(listed.version, 30))
    await cluster.pass_time(3)
    assert not polling.done(), "time and beats change nothing"
    await cluster.put(variant_spec("i-1"))
    assert [each.instance_id for each in (await polling).instances] == ["i-1"]


@pytest.mark.parametrize("fault", ["die", "hang"])
async def test_the_instances_of_a_lost_node_vanish_and_are_placed_elsewhere(cluster, fault):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    lost = places["i-1"]
    getattr(cluster.agents[lost], fault)()
    await cluster.pass_time(2)
    assert await cluster.places() == places, "it may be slow"
    await cluster.pass_time(3)
    assert await cluster.places() == {"i-2": places["i-2"]}
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.places())["i-1"] == places["i-2"]


async def test_containers_of_a_lost_node_are_not_reached(cluster):
    assert cluster.fleet.reached == {}
    await cluster.begin("a", "b")
    reached = {name: cluster.records[name].agent_address for name in ("a", "b")}
    assert cluster.fleet.reached == reached
    cluster.agents["b"].hang()
    await cluster.pass_time(5)
    assert cluster.fleet.reached == {"a": reached["a"]}
    await cluster.fleet.stand_down()
    assert cluster.fleet.reached == {}


async def test_a_call_does_not_wait_for_a_node_that_is_lost(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].hang()
    deleting = asyncio.create_task(cluster.fleet.delete_instance("i-1"))
    await cluster.pass_time(5)
    with pytest.raises(Unavailable, match="node a does not answer"):
        await deleting


async def test_of_two_copies_the_assigned_one_stays(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"))
    first = (await cluster.places())["i-1"]
    cluster.agents[first].hang()
    await cluster.pass_time(5)
    await cluster.put(variant_spec("i-1"))
    second = (await cluster.places())["i-1"]
    assert second != first
    cluster.agents[first].go_on()
    await cluster.pass_time(2)
    assert await cluster.places() == {"i-1": second}
    assert cluster.agents[first].states == {"i-1": InstanceState.STOPPING}
    assert ("delete", "i-1") not in cluster.agents[second].calls


async def test_a_node_that_returns_in_time_keeps_its_instances(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].hang()
    await cluster.pass_time(6)
    assert await cluster.reports() == {}
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.reports())["i-1"].failure_reason, "it waits for a node"
    cluster.agents["a"].go_on()
    await cluster.pass_time(2)
    assert await cluster.places() == {"i-1": "a"}
    assert cluster.agents["a"].states == {"i-1": InstanceState.STARTING}


async def test_another_agent_on_the_node_begins_without_instances(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].restart()
    await cluster.pass_time(2)
    assert await cluster.reports() == {}
    await cluster.put(variant_spec("i-1"))
    assert await cluster.places() == {"i-1": "a"}


async def test_what_does_not_fit_waits_with_sagemakers_words_until_there_is_room(cluster):
    await cluster.begin("a", resources=SMALL)
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3)))
    waiting = (await cluster.reports())["i-2"]
    assert waiting.state is InstanceState.STARTING
    assert waiting.failure_reason.startswith(
        "CapacityError: Unable to provision requested ML compute capacity due to "
        "InsufficientInstanceCapacity error."
    )
    assert "2 vCPUs, 8 GiB of memory, which no node" in waiting.failure_reason
    assert set(cluster.agents["a"].states) == {"i-0", "i-1"}
    await cluster.begin("b", resources=SMALL)
    await cluster.pass_time(1)
    assert (await cluster.places())["i-2"] == "b"
    # Room that has become free is used, too.
    await cluster.put(variant_spec("i-3"), variant_spec("i-4"))
    await cluster.fleet.delete_instance("i-0")
    cluster.agents["a"].end_instance("i-0")
    await cluster.settle()
    assert (await cluster.places())["i-4"] == "a"


async def test_an_instance_that_waited_for_too_long_has_failed(cluster):
    await cluster.begin("a", resources=SMALL)
    spec = variant_spec("i-1", instance_type="ml.p4d.24xlarge")
    await cluster.put(spec)
    await cluster.pass_time(99)
    assert (await cluster.reports())["i-1"].state is InstanceState.STARTING
    await cluster.pass_time(2)
    failed = (await cluster.reports())["i-1"]
    assert failed.state is InstanceState.FAILED
    assert "none of the cluster's 1 nodes is that large" in failed.failure_reason
    await cluster.put(spec)
    assert (await cluster.reports())["i-1"].state is InstanceState.STARTING
    await cluster.fleet.delete_instance("i-1")
    assert await cluster.reports() == {}


async def test_a_refused_instance_takes_no_room(cluster):
    await cluster.begin("a", resources=SMALL)
    cluster.agents["a"].refuses = "The name cannot be a name."
    for number in range(3):
        with pytest.raises(Invalid, match="cannot be a name"):
            await cluster.fleet.put_instance(variant_spec(f"i-{number}"))
    cluster.agents["a"].refuses = None
    await cluster.put(variant_spec("i-3"))
    assert await cluster.places() == {"i-3": "a"}


async def test_a_new_leader_learns_what_runs_where_and_what_it_takes(cluster):
    await cluster.begin("a", resources=SMALL)
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    await cluster.fleet.put_job(attempt_spec("j-1"))
    await cluster.fleet.stand_down()
    with pytest.raises(Unavailable):
        await cluster.fleet.instances()
    cluster.fleet = cluster.make_fleet()
    await cluster.begin("b", resources=SMALL)
    assert await cluster.places() == {"i-1": "a", "i-2": "a"}
    await cluster.put(variant_spec("i-3"), variant_spec("i-4"), variant_spec("i-5"))
    places = await cluster.places()
    assert (places["i-3"], places["i-4"], places["i-5"]) == ("b", "b", "")


async def test_a_node_that_is_drained_gets_nothing_new(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2", owner=InstanceOwner.TRANSFORM_JOB))
    told = []
    cluster.fleet.on_nodes = lambda: told.append(cluster.fleet.leaving)
    drained = (await cluster.places())["i-1"]
    await cluster.change(drained, is_draining=True)
    assert told == [frozenset({"i-1"})]
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3, 6)))
    places = await cluster.places()
    assert {places[f"i-{number}"] for number in range(3, 6)} == {"a", "b"} - {drained}
    assert places["i-1"] == drained
    # A failed instance is started again where it is not drained.
    cluster.agents[drained].end_instance("i-1")
    await cluster.settle()
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.places())["i-1"] != drained


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


async def test_every_other_node_gets_each_route_table_also_after_it_was_away(cluster):
    cluster.routes_file.write_bytes(b"one")
    await cluster.begin("a", "b", "c")
    cluster.fleet.hint_routes()
    await cluster.settle()
    cluster.agents["c"].die()
    cluster.routes_file.write_bytes(b"two")
    cluster.fleet.hint_routes()
    await cluster.settle()
    assert cluster.agents["b"].tables == [b"one", b"two"]
    assert cluster.agents["a"].tables == [], "control writes its own"
    await cluster.pass_time(5)
    cluster.agents["c"].restart()
    await cluster.pass_time(3)
    assert cluster.agents["c"].tables == [b"one", b"two"]
    assert cluster.fleet.node_routes["a"] == NodeRoute(
        peer_address="a:2", control_address="a:4", agent_address="a:1"
    )
    assert cluster.fleet.node_routes["b"] == NodeRoute(peer_address="b:2", agent_address="b:1")


def route_table(version, *names):
    routes = {name: {"endpoint_name": name, "variants": []} for name in names}
    return msgspec.json.encode({"version": version, "routes": routes})


async def test_nodes_get_what_has_changed_in_the_route_table_or_all_of_it(cluster):
    async def publish(version, *names):
        cluster.routes_file.write_bytes(route_table(version, *names))
        cluster.fleet.hint_routes()
        await cluster.settle()

    def got(name):
        calls = [call for call, _ in cluster.agents[name].calls if call.startswith("route")]
        decoded = msgspec.json.decode(cluster.agents[name].tables[-1], type=RouteTable)
        cluster.agents[name].calls.clear()
        return calls, sorted(decoded.routes)

    await cluster.begin("a", "b", "c")
    cluster.agents["c"].takes_changes = False  # it is of the release before
    await publish(1, "one", "two", "three")
    assert got("b") == (["routes"], ["one", "three", "two"])
    await publish(2, "one", "two", "three", "four")
    assert got("b") == (["route changes"], ["four", "one", "three", "two"])
    assert got("c")[0] == ["routes", "route changes", "routes"]
    await publish(3, "one", "two", "four")
    assert got("b") == (["route changes"], ["four", "one", "two"])
    assert got("c")[1] == ["four", "one", "two"]
    cluster.agents["b"].restart()
    await cluster.pass_time(2)
    assert got("b") == (["routes"], ["four", "one", "two"])


async def test_a_new_leader_sends_no_table_before_its_own(cluster):
    """Its file may be older than what the nodes have from the last leader."""
    cluster.routes_file.write_bytes(b"old")
    await cluster.begin("a", "b")
    await cluster.begin("c")
    assert [agent.tables for agent in cluster.agents.values()] == [[], [], []]
    cluster.routes_file.write_bytes(b"new")
    cluster.fleet.hint_routes()
    await cluster.settle()
    await cluster.begin("d")
    assert cluster.agents["b"].tables == cluster.agents["d"].tables == [b"new"]
    await cluster.fleet.stand_down()
    cluster.fleet.hint_routes()  # of a pass that has not heard of it
    await cluster.settle()
    await cluster.begin("a", "b")
    assert cluster.agents["b"].tables == [b"new"]


async def test_no_agent_is_sent_to_a_node_that_is_lost(cluster):
    changes = []
    await cluster.begin("a", "b")
    cluster.fleet.on_nodes = lambda: changes.append(cluster.fleet.node_routes["b"].agent_address)
    cluster.agents["b"].die()
    await cluster.pass_time(5)
    assert changes == [""]
    cluster.agents["b"].restart()
    await cluster.pass_time(3)
    assert changes[-1] == "b:1"


async def test_what_nodes_say_is_put_together(cluster):
    await cluster.begin("a", "b", "c")
    cluster.agents["c"].die()
    assert await cluster.fleet.metrics() == ["a", "b"]
    assert await cluster.fleet.problems() == [
        "Node a: It is too warm.",
        "Node b: It is too warm.",
    ]
    assert await cluster.fleet.missing_walls() == ["network"]
    assert (await cluster.fleet.gpus()).problem == "a has none"
    assert set(await cluster.fleet.descriptions()) == {"a", "b"}
    await cluster.fleet.check_health()
    for agent in cluster.agents.values():
        agent.die()
    await cluster.pass_time(5)
    with pytest.raises(Unavailable, match="No node of the cluster answers"):
        await cluster.fleet.check_health()


async def test_a_node_that_is_forgotten_takes_its_instances_along(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    del cluster.records["b"]
    await cluster.set_nodes()
    await cluster.settle()
    assert await cluster.places() == {key: place for key, place in places.items() if place == "a"}
    assert cluster.agents["b"].closed


async def test_a_node_that_has_the_model_on_disk_is_preferred(cluster):
    await cluster.begin("a", "b", "c")
    cluster.agents["b"].held_models = ["s3://models/x#1", "s3://many/"]
    await cluster.pass_time(2)
    single = with_model(model_data_url="s3://models/x", model_data_etag="1")
    await cluster.put(variant_spec("i-1", "one", containers=single))
    assert cluster.where("i-1") == {"b"}
    many = with_model(model_data_url="https://s3.amazonaws.com/many/", multi_model=True)
    await cluster.put(variant_spec("i-2", "many", containers=many))
    assert cluster.where("i-2") == {"b"}
    # It is evicted, and another version is not the same.
    cluster.agents["b"].held_models = ["s3://models/x#2"]
    cluster.agents["c"].held_models = ["s3://models/x#1", "s3://else", "s3://more"]
    await cluster.pass_time(7)
    await cluster.fleet.delete_instance("i-1")
    cluster.agents["b"].end_instance("i-1")
    await cluster.settle()
    await cluster.put(variant_spec("i-3", "three", containers=single))
    assert cluster.where("i-3") == {"c"}


def with_model(**members):
    return (msgspec.structs.replace(CONTAINERS[0], **members),)


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
