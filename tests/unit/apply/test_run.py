"""Whole runs over a world in memory: applied, changed, killed anywhere, applied again."""

import threading
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagehen.apply.client import Destination
from sagehen.apply.perform import RunInterrupted, StackRun, look_at, perform
from sagehen.apply.plan import Action, StackPlan, make_plan, plan_removal
from sagehen.apply.resources import KINDS
from sagehen.apply.stack import claimed, load_stack
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.template import read_template
from sagehen.base.errors import AlreadyExists, Invalid
from support.apply_world import Crash

MODEL, CONFIG, ENDPOINT = (
    f"AWS::SageMaker::{name}" for name in ("Model", "EndpointConfig", "Endpoint")
)
TOPIC, SUBSCRIPTION, BUCKET = "AWS::SNS::Topic", "AWS::SNS::Subscription", "AWS::S3::Bucket"


class NeverWaits(threading.Event):
    def wait(self, timeout=None):
        return self.is_set()


def resource(kind, properties=None, **more):
    return {"Type": kind, "Properties": properties or {}, **more}


def deployment(image="a", topic="x", endpoint=True, **more):
    """A model behind an endpoint, and a topic."""
    variant = {"VariantName": "v", "ModelName": {"Fn::GetAtt": "Model.ModelName"}}
    found = {
        "Model": resource(MODEL, {"PrimaryContainer": {"Image": image}, **more}),
        "Config": resource(CONFIG, {"ProductionVariants": [variant]}),
        "Topic": resource(TOPIC, {"DisplayName": topic}),
    }
    if endpoint:
        config = {"Fn::GetAtt": ["Config", "EndpointConfigName"]}
        found["Endpoint"] = resource(ENDPOINT, {"EndpointConfigName": config})
    return found


class Runner:
    def __init__(self, world, stack="s"):
        self.world = world
        self.stack = stack
        self.said = []

    def plan(self, resources, adopt=False, outputs=None, hidden=(), **parameters):
        declared = {name: {"Type": "String", "NoEcho": name in hidden} for name in parameters}
        sections = {"Parameters": declared, "Resources": resources, "Outputs": outputs or {}}
        template = read_template(sections, KINDS)
        stack = load_stack(self.world, self.stack)
        resolver = Resolver(
            template, parameters, self.stack, Destination(self.world), stack.content
        )
        desired = resolver.resolve_all()
        lives = look_at(self.world, desired)
        return make_plan(desired, stack.content, lives, adopt=adopt), resolver, stack

    def apply(self, resources, stop=None, **more):
        return self.run(*self.plan(resources, **more), stop)

    def delete(self, stop=None):
        stack = load_stack(self.world, self.stack)
        if stack.version:
            self.run(plan_removal(stack.content), None, stack, stop)

    def run(self, plan, resolver, stack, stop):
        with claimed(self.world, stack) as journal:
            work = StackRun(self.world, journal, stop or NeverWaits(), self.said.append, 60)
            perform(plan, resolver, work)
        return plan

    def content(self):
        return load_stack(self.world, self.stack).content


@pytest.fixture
def runner(world):
    return Runner(world)


def actions(plan):
    return {step.desired.logical_id: step.action for step in plan.steps}


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


def test_a_change_in_place(runner, world):
    runner.apply(deployment(topic="x"))
    plan = runner.apply(deployment(topic="y"))
    (change,) = next(one for one in plan.steps if one.action is Action.UPDATE).changes
    assert (change.path, change.before, change.after) == ("DisplayName", "x", "y")
    assert not plan.destroys


def test_what_others_have_deleted_is_created_again(runner, world):
    runner.apply(deployment())
    del world.things[next(key for key in world.things if key[0] == TOPIC)]
    plan = runner.apply(deployment())
    assert actions(plan)["Topic"] is Action.CREATE
    assert [step.note for step in plan.steps if step.note] == ["it is gone"]
    assert any(key[0] == TOPIC for key in world.things)


def test_what_others_have_changed_is_mended_where_it_can_be(runner, world):
    runner.apply(deployment())
    for key, value in (
        (TOPIC, {"DisplayName": "mine"}),
        (MODEL, {"PrimaryContainer": {"Image": "z"}}),
    ):
        name = next(one for one in world.things if one[0] == key)
        world.things[name] = value
    plan = runner.apply(deployment())
    by_id = {step.desired.logical_id: step for step in plan.steps}
    assert by_id["Topic"].action is Action.UPDATE
    assert by_id["Topic"].drift[0].before == "mine"
    assert by_id["Model"].action is Action.SAME
    assert by_id["Model"].drift[0].path == "PrimaryContainer.Image"
    topic = next(one for key, one in world.things.items() if key[0] == TOPIC)
    assert topic == {"DisplayName": "x"}


@pytest.mark.parametrize(
    ("kind", "named"), [(TOPIC, "TopicName"), ("AWS::SQS::Queue", "QueueName")]
)
def test_a_name_that_is_not_told_was_not_changed(runner, world, kind, named):
    template = {"Mine": resource(kind, {named: "mine"})}
    runner.apply(template)
    world.things[kind, "mine"] = {}  # As SNS and SQS tell of them.
    plan = runner.apply(template)
    assert [(step.action, step.drift) for step in plan.steps] == [(Action.SAME, ())]


def test_a_name_of_the_templates_own_cannot_be_replaced(runner, world):
    runner.apply(deployment("a", ModelName="mine"))
    before = dict(world.things)
    with pytest.raises(Invalid, match=r"custom-named resource requires replacing. Rename mine"):
        runner.apply(deployment("b", ModelName="mine"))
    assert world.things == before
    plan = runner.apply(deployment("b", ModelName="other"))
    assert actions(plan)["Model"] is Action.REPLACE
    assert (MODEL, "mine") not in world.things


def test_what_is_not_the_stacks_is_refused_or_adopted_if_equal(runner, world):
    world.things[TOPIC, "t"] = {"DisplayName": "theirs", "Owner": "1"}
    wanted = {"T": resource(TOPIC, {"TopicName": "t", "DisplayName": "ours"})}
    with pytest.raises(AlreadyExists, match=r"identifier 't' already exists, and is not the"):
        runner.apply(wanted)
    with pytest.raises(AlreadyExists, match=r"cannot be adopted as T.*\(DisplayName\)"):
        runner.apply(wanted, adopt=True)
    assert not world.stacks
    world.things[TOPIC, "t"] |= {"DisplayName": "ours"}
    plan = runner.apply(wanted, adopt=True)
    assert actions(plan) == {"T": Action.ADOPT}
    assert not world.done
    runner.delete()
    assert not world.things


def test_a_logical_id_is_renamed_by_adopting(runner, world):
    def named(logical_id):
        return {logical_id: resource(BUCKET, {"BucketName": "data"})}

    runner.apply(named("One"))
    with pytest.raises(AlreadyExists, match="is the stack's One"):
        runner.apply(named("Two"))
    plan = runner.apply(named("Two"), adopt=True)
    assert not plan.removals
    assert list(runner.content().resources) == ["Two"]
    assert (BUCKET, "data") in world.things


def test_what_is_retained_stays(runner, world):
    runner.apply({"B": resource(BUCKET, DeletionPolicy="Retain"), **deployment()})
    runner.apply(deployment())
    assert any(key[0] == BUCKET for key in world.things)
    assert "B" not in runner.content().resources


def test_what_is_replaced_may_be_retained(runner, world):
    def of(image):
        policy = {"UpdateReplacePolicy": "Retain"}
        return {"M": resource(MODEL, {"PrimaryContainer": {"Image": image}}, **policy)}

    runner.apply(of("a"))
    world.crash_at = 2 * world.steps + 5  # The new one is made, the old one still a leftover.
    with pytest.raises(Crash):
        runner.apply(of("b"))
    world.crash_at = -1
    assert len(world.things) == 2
    runner.apply(of("b"))
    assert len(world.things) == 2
    assert not runner.content().leftovers


def test_a_template_goes_back_before_the_old_ones_are_removed(runner, world):
    runner.apply(deployment("a", endpoint=False))
    first = set(world.things)
    plan, resolver, stack = runner.plan(deployment("b", endpoint=False))
    runner.run(StackPlan(steps=plan.steps, removals=()), resolver, stack, None)
    assert len(runner.content().leftovers) == 2
    runner.apply(deployment("a", endpoint=False))
    assert set(world.things) == first
    assert not runner.content().leftovers


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
        _crashing(world, crash, lambda version=version: runner.apply(version))
    runner.apply(versions[-1])
    again, _, _ = runner.plan(versions[-1])
    assert not again.changes_anything
    wanted = {(one.desired.type, one.desired.name) for one in again.steps}
    assert set(world.things) == wanted
    assert not runner.content().leftovers
    if how:
        _crashing(world, crashes[0], runner.delete)
    runner.delete()
    assert not world.things
    assert not world.stacks


def _crashing(world, crash, run):
    """Run it, with an end in the half step `crash` from now, if it comes so far."""
    world.crash_at = 2 * world.steps + crash
    with suppress(Crash):
        run()
    world.crash_at = -1


SECRET = {"S": "hush-hush"}
OF_SECRET = {
    "Topic": resource(TOPIC, {"DisplayName": {"Fn::Sub": "a ${S}"}}),
    "Hook": resource(
        SUBSCRIPTION,
        {
            "TopicArn": {"Ref": "Topic"},
            "Protocol": "webhook",
            "Endpoint": {"Fn::Sub": "http://host/${S}"},
            "FilterPolicy": {"a": [{"Ref": "S"}]},
        },
    ),
}
OUTPUTS = {"Said": {"Value": {"Ref": "S"}}, "Open": {"Value": "open"}}


def test_the_record_has_no_secret_and_knows_when_it_changes(world):
    runner = Runner(world)
    runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    record = str(world.stacks["s"])
    assert "hush" not in record
    assert "open" in record
    assert "hush" in str(world.things), "resources have it, of course"
    before = world.stacks["s"]["content"]
    plan = runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    assert {step.action for step in plan.steps} == {Action.SAME}
    assert world.stacks["s"]["content"] == before, "nor does it change by being looked at"
    plan = runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", S="other-secret")
    assert {step.desired.logical_id: step.action for step in plan.steps} == {
        "Topic": Action.UPDATE,
        "Hook": Action.REPLACE,
    }
    assert "other-secret" not in str(world.stacks["s"])
    assert "hush" not in str(world.things)
    runner.delete()
    assert world.things == {}


def test_each_value_has_a_hash_of_its_own(world):
    runner = Runner(world)
    same = {name: resource(TOPIC, {"DisplayName": {"Ref": "S"}}) for name in ("A", "B")}
    runner.apply(same, hidden="S", **SECRET)
    kept = runner.content().resources
    assert kept["A"].properties["DisplayName"] != kept["B"].properties["DisplayName"]


SECRET_RUN_HALF_STEPS = 18
"""Of the run below when nothing ends it: it is killed at each of them, and once behind the last."""


@pytest.mark.parametrize("crash_at", range(SECRET_RUN_HALF_STEPS + 1))
def test_a_run_with_a_secret_that_is_killed_is_gone_on_with(world, crash_at):
    runner = Runner(world)
    _crashing(
        world,
        crash_at,
        lambda: runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET),
    )
    # Else some of its half steps would not be tried.
    assert (2 * world.steps == SECRET_RUN_HALF_STEPS) == (crash_at >= SECRET_RUN_HALF_STEPS - 1)
    assert "hush" not in str(world.stacks)
    world.crash_at = -1
    for stack in world.stacks.values():
        stack["claim"] = None
    runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    assert len(world.things) == 2
    plan = runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    assert not plan.changes_anything


def test_what_an_earlier_version_wrote_in_clear_is_hidden_with_the_next_run(world):
    runner = Runner(world)
    runner.apply(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    topic = world.stacks["s"]["content"]["resources"]["Topic"]
    topic["properties"]["DisplayName"] = "a hush-hush"
    plan, resolver, stack = runner.plan(OF_SECRET, outputs=OUTPUTS, hidden="S", **SECRET)
    assert not plan.changes_anything
    assert stack.content.has_plain
    runner.run(plan, resolver, stack, None)
    assert "hush" not in str(world.stacks["s"])
