"""Plans: what is changed in place, replaced, mended, adopted, retained or refused."""

import pytest

from sagehen.apply.plan import Action, StackPlan
from sagehen.base.errors import AlreadyExists, Invalid
from support.apply_runs import BUCKET, MODEL, TOPIC, actions, deployment, resource
from support.apply_world import Crash


def test_a_change_in_place(runner, world):
    runner.apply(deployment(topic="x"))
    plan = runner.apply(deployment(topic="y"))
    (change,) = next(one for one in plan.steps if one.action is Action.UPDATE).changes
    assert (change.path, change.before, change.after) == ("DisplayName", "x", "y")
    assert not plan.destroys


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


def test_roles_and_policies_are_in_the_record_alone(runner, world):
    def template(action, **more):
        document = {"Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
        role = {"AssumeRolePolicyDocument": {"Statement": []}, "Path": "/service/", **more}
        return {
            "Role": resource("AWS::IAM::Role", role),
            "Policy": resource(
                "AWS::IAM::Policy",
                {"PolicyName": "p", "PolicyDocument": document, "Roles": [{"Ref": "Role"}]},
            ),
            "Model": resource(MODEL, {"ExecutionRoleArn": {"Fn::GetAtt": "Role.Arn"}}),
        }

    runner.apply(template("s3:*"))
    assert {key[0] for key in world.things} == {MODEL}
    record = runner.content().resources
    assert record["Policy"].properties["Roles"] == [record["Role"].name]
    arn = f"arn:aws:iam::123456789012:role/service/{record['Role'].name}"
    assert record["Model"].properties["ExecutionRoleArn"] == arn
    assert not runner.apply(template("s3:*")).changes_anything
    plan = runner.apply(template("sqs:*"))
    assert actions(plan) == {
        "Role": Action.SAME,
        "Policy": Action.UPDATE,
        "Model": Action.SAME,
    }
    runner.apply(template("sqs:*", Path="/other/"))
    moved = runner.content().resources["Model"].properties["ExecutionRoleArn"]
    assert moved == arn.replace("/service/", "/other/")
    plan = runner.apply(template("sqs:*", RoleName="mine"))
    assert actions(plan)["Role"] is Action.REPLACE
    assert runner.content().resources["Role"].name == "mine"
    assert runner.content().leftovers == ()
    runner.delete()
    assert (runner.content().resources, world.things) == ({}, {})
