"""Whole runs over a world in memory: applied, changed, killed anywhere, applied again."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagehen.apply.perform import RunInterrupted
from sagehen.apply.plan import Action
from sagehen.apply.resources import KINDS
from sagehen.base.errors import Invalid
from support.apply_runs import (
    BUCKET,
    ENDPOINT,
    MODEL,
    SUBSCRIPTION,
    TOPIC,
    NeverWaits,
    Runner,
    actions,
    crashing,
    deployment,
    resource,
)


def test_twice_is_once(runner, world):
    plan = runner.apply(deployment())
    assert set(actions(plan).values()) == {Action.CREATE}
    assert len(world.things) == 4
    again, _, _ = runner.plan(deployment())
    assert set(actions(again).values()) == {Action.SAME}
    assert not again.changes_anything


def test_an_endpoint_never_loses_what_it_serves(runner, world):
    runner.apply(deployment("a"))
    world.done.clear()
    plan = runner.apply(deployment("b"))
    assert actions(plan) == {
        "Model": Action.REPLACE,
        "Config": Action.REPLACE,
        "Endpoint": Action.UPDATE,
        "Topic": Action.SAME,
    }
    verbs = [one.split("-")[0] + "-" + one.split("-")[1] for one in world.done]
    assert verbs == [
        "create s-Model",
        "create s-Config",
        "update s-Endpoint",
        "delete s-Config",
        "delete s-Model",
    ]
    assert len(world.things) == 4
    assert not runner.content().leftovers


def test_what_others_have_deleted_is_created_again(runner, world):
    runner.apply(deployment())
    del world.things[next(key for key in world.things if key[0] == TOPIC)]
    plan = runner.apply(deployment())
    assert actions(plan)["Topic"] is Action.CREATE
    assert [step.note for step in plan.steps if step.note] == ["it is gone"]
    assert any(key[0] == TOPIC for key in world.things)


def test_a_failed_endpoint_is_made_anew(runner, world, monkeypatch):
    runner.apply(deployment())
    kind, look = KINDS[ENDPOINT], world.look

    def failed(of, name, properties):
        live = look(of, name, properties)
        if of is kind and live and not any(one.startswith("delete") for one in world.done):
            return type(live)(name=name, properties=live.properties, status="failed", reason="why")
        return live

    monkeypatch.setattr(world, "look", failed)
    plan = runner.apply(deployment())
    step = next(one for one in plan.steps if one.desired.logical_id == "Endpoint")
    assert (step.action, step.note) == (Action.RECREATE, "it failed: why")
    assert plan.destroys
    assert [one.split("-")[0] for one in world.done[-2:]] == ["delete s", "create s"]


def test_what_is_refused_leaves_no_trace(runner, world):
    def refuse(*_):
        raise Invalid("No such image.")

    world.create, create = refuse, world.create
    with pytest.raises(Invalid, match="No such image"):
        runner.apply(deployment())
    assert not world.stacks
    world.create = create
    runner.apply(deployment())
    assert len(world.things) == 4


def test_a_run_stops_behind_the_step_under_way(runner, world):
    class AfterTwo(NeverWaits):
        def is_set(self):
            return len(world.things) >= 2

    with pytest.raises(RunInterrupted):
        runner.apply(deployment(), stop=AfterTwo())
    assert len(world.things) == 2
    assert {one.phase for one in runner.content().resources.values()} == {"ready"}
    assert world.stacks["s"]["claim"] is None
    runner.apply(deployment())
    assert len(world.things) == 4


def test_another_run_is_not_crossed(runner, world):
    plan, resolver, stack = runner.plan(deployment())
    runner.apply({"B": resource(BUCKET)})
    with pytest.raises(Exception, match="the version"):
        runner.run(plan, resolver, stack, None)
    assert len(world.things) == 1


def test_outputs_are_kept_and_policies_are_folded_in(runner, world):
    topic = {"T": resource(TOPIC)}
    runner.apply(topic)
    world.done.clear()
    outputs = {"Arn": {"Value": {"Ref": "T"}}}
    topic["T"]["DeletionPolicy"] = "Retain"
    plan = runner.apply(topic, outputs=outputs)
    assert plan.is_to_be_written
    assert not plan.changes_anything
    assert not world.done
    content = runner.content()
    assert content.outputs["Arn"].startswith("arn:aws:sns:eu-west-1:123456789012:s-T-")
    assert content.resources["T"].deletion_policy == "Retain"
    runner.delete()
    assert len(world.things) == 1
    assert not world.stacks


TEXTS = st.sampled_from(["a", "b"])


@st.composite
def templates(draw):
    found = {}
    if draw(st.booleans()):
        found |= deployment(draw(TEXTS), draw(TEXTS), draw(st.booleans()))
    if draw(st.booleans()):
        name = draw(TEXTS)
        found["Named"] = resource(MODEL, {"ModelName": f"named-{name}", "Tags": _tags(draw(TEXTS))})
    if draw(st.booleans()):
        found["Bucket"] = resource(BUCKET, {"BucketName": f"bucket-{draw(TEXTS)}"})
    if draw(st.booleans()):
        found["Other"] = resource(TOPIC, {"DisplayName": draw(TEXTS)})
        subscription = {
            "TopicArn": {"Ref": "Other"},
            "Protocol": "email",
            "Endpoint": f"{draw(TEXTS)}@x",
            "FilterPolicy": {"k": [draw(TEXTS)]},
        }
        found["Subscription"] = resource(SUBSCRIPTION, subscription)
    found.setdefault("Anchor", resource(TOPIC))
    return found


def _tags(value):
    return [{"Key": "k", "Value": value}]


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    versions=st.lists(templates(), min_size=1, max_size=4),
    crashes=st.lists(st.integers(0, 60), min_size=4, max_size=4),
    how=st.integers(0, 1),
)
def test_whatever_was_killed_the_next_run_ends_with_what_is_wanted(world, versions, crashes, how):
    world.__init__()
    runner = Runner(world)
    for version, crash in zip(versions, crashes, strict=False):
        crashing(world, crash, lambda version=version: runner.apply(version))
    runner.apply(versions[-1])
    again, _, _ = runner.plan(versions[-1])
    assert not again.changes_anything
    wanted = {(one.desired.type, one.desired.name) for one in again.steps}
    assert set(world.things) == wanted
    assert not runner.content().leftovers
    if how:
        crashing(world, crashes[0], runner.delete)
    runner.delete()
    assert not world.things
    assert not world.stacks
