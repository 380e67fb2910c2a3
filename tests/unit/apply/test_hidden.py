"""Values of NoEcho parameters: the record of a stack has only their hashes."""

import pytest

from sagehen.apply.plan import Action
from support.apply_runs import SUBSCRIPTION, TOPIC, Runner, crashing, resource

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
    crashing(
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
