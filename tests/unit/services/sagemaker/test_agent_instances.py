"""Requests to the agent, and what it refuses."""

from types import SimpleNamespace

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Invalid, Unavailable
from sagehen.frame.container_specs import InstanceOwner, InstanceReport, InstanceState
from sagehen.services.sagemaker.agent_instances import AgentInstances


class Agent:
    """Notes what it is asked; raises the next of `errors` instead."""

    def __init__(self):
        self.asked = []
        self.errors = []

    def _note(self, *words):
        self.asked.append(words)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error

    async def instances(self, since=None, wait_seconds=0):
        raise Unavailable("away")

    async def put_instance(self, spec):
        self._note("put", spec.instance_id)

    async def delete_instance(self, instance_id):
        self._note("delete", instance_id)

    async def keep_warm(self, images):
        self._note("warm", *images)


def made():
    agent, woken = Agent(), []
    instances = AgentInstances(agent, InstanceOwner.TRANSFORM_JOB, SYSTEM, lambda: woken.append(1))
    return agent, woken, instances


def spec(name):
    return SimpleNamespace(instance_id=name)


def reported(instances, *reports):
    instances._watch.reports = {report.instance_id: report for report in reports}


async def test_a_refused_instance_has_failed_until_it_is_stopped():
    agent, woken, instances = made()
    reported(instances)
    agent.errors = [Invalid("No such image.")]
    await instances.request([spec("i-1"), spec("i-2")], [])
    assert agent.asked == [("put", "i-1"), ("put", "i-2")]
    (report,) = instances.reports.values()
    assert (report.state, report.failure_reason) == (InstanceState.FAILED, "No such image.")
    assert report.owner is InstanceOwner.TRANSFORM_JOB
    assert len(woken) == 1
    await instances.request([], ["i-1"])
    assert instances.reports == {}
    assert len(woken) == 2


async def test_an_agent_that_is_away_is_asked_nothing_more():
    agent, woken, instances = made()
    agent.errors = [Unavailable("away")]
    await instances.request([spec("i-1"), spec("i-2")], ["i-3"])
    assert agent.asked == [("put", "i-1")]
    assert not woken


async def test_all_but_those_that_stop_already_are_stopped():
    agent, _, instances = made()
    reported(
        instances,
        InstanceReport(instance_id="i-1", state=InstanceState.STOPPING),
        InstanceReport(instance_id="i-2", state=InstanceState.IN_SERVICE),
        InstanceReport(instance_id="i-3", state=InstanceState.STARTING),
    )
    agent.errors = [Invalid("It is not there.")]
    await instances.stop_all()
    assert agent.asked == [("delete", "i-2"), ("delete", "i-3")]


async def test_the_agent_is_told_of_images_in_each_pass_and_of_their_end_once():
    agent, _, instances = made()
    assert await instances.keep_warm([])
    assert agent.asked == [], "it knows of none"
    assert await instances.keep_warm(["a", "b"])
    agent.errors = [Unavailable("away")]
    assert not await instances.keep_warm(["a", "b"])
    assert await instances.keep_warm([])
    assert await instances.keep_warm([])
    assert agent.asked == [("warm", "a", "b"), ("warm", "a", "b"), ("warm",)]
