"""Runs of templates over a world in memory."""

import threading
from contextlib import suppress

from sagehen.apply.client import Destination
from sagehen.apply.perform import StackRun, perform, read_actual
from sagehen.apply.plan import make_plan, plan_removal
from sagehen.apply.resources import KINDS
from sagehen.apply.stack import claimed, load_stack
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.template import read_template
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
        lives = read_actual(self.world, desired)
        return make_plan(desired, stack.content, lives, adopt=adopt), resolver, stack

    def apply(self, resources, stop=None, **more):
        plan, resolver, stack = self.plan(resources, **more)
        return self.run(plan, resolver, stack, stop)

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


def actions(plan):
    return {step.desired.logical_id: step.action for step in plan.steps}


def crashing(world, crash, run):
    """Run it, with an end in the half step `crash` from now, if it comes so far."""
    world.crash_at = 2 * world.steps + crash
    with suppress(Crash):
        run()
    world.crash_at = -1
