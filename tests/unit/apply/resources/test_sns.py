"""Subscriptions whose ARN is not known: found by lists alone, and asked to confirm once."""

import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagehen.apply.client import Destination
from sagehen.apply.perform import StackRun, perform, read_actual
from sagehen.apply.plan import Action, StackPlan, make_plan, plan_removal
from sagehen.apply.resources import KINDS
from sagehen.apply.resources.sns import SubscriptionKind
from sagehen.apply.stack import claimed, load_stack
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.template import read_template
from sagehen.base.errors import AlreadyExists
from support.apply_world import Crash, World

TOPIC = "arn:aws:sns:eu-west-1:123456789012:t"
ARN = f"{TOPIC}:1"
PROPERTIES = {"TopicArn": TOPIC, "Protocol": "http", "Endpoint": "http://receiver/"}
RESOURCES = {"ToHook": {"Type": "AWS::SNS::Subscription", "Properties": PROPERTIES}}


class Sns:
    """SNS with one subscription at most, which nobody confirms; keeps the names of its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.attributes: dict[str, str] | None = None
        self.is_confirmed = False
        self.breaks_off = False
        """the client dies before it gets the answer of Subscribe"""

    def subscribe(self, Attributes: dict[str, str] | None = None, **_: Any) -> dict[str, str]:  # noqa: N803
        self.calls.append("Subscribe")
        if self.attributes is None:
            self.attributes = {**PROPERTIES, **(Attributes or {})}
        if self.breaks_off:
            raise Crash
        return {"SubscriptionArn": ARN}

    def unsubscribe(self, **_: Any) -> None:
        self.calls.append("Unsubscribe")
        self.attributes = None

    def get_subscription_attributes(self, SubscriptionArn: str) -> dict[str, Any]:  # noqa: N803
        self.calls.append("GetSubscriptionAttributes")
        assert SubscriptionArn == ARN
        if self.attributes is None:
            raise ClientError({"Error": {"Code": "NotFound"}}, "GetSubscriptionAttributes")
        return {"Attributes": self.attributes}

    def get_paginator(self, name: str) -> "Sns":
        assert name == "list_subscriptions_by_topic"
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        self.calls.append("ListSubscriptionsByTopic")
        arn = ARN if self.is_confirmed else "PendingConfirmation"
        listed = [] if self.attributes is None else [{**PROPERTIES, "SubscriptionArn": arn}]
        return [{"Subscriptions": listed}]


class SnsWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.sns = Sns()

    def client(self, _: str) -> Sns:
        return self.sns


@pytest.fixture
def world() -> SnsWorld:
    return SnsWorld()


def plan(world: Any, adopt: bool = False) -> tuple[StackPlan, Resolver, Any]:
    """All that a dry run does."""
    stack = load_stack(world, "s")
    template = read_template({"Resources": RESOURCES}, KINDS)
    resolver = Resolver(template, {}, "s", Destination(world), stack.content)
    desired = resolver.resolve_all()
    made = make_plan(desired, stack.content, read_actual(world, desired), adopt=adopt)
    return made, resolver, stack


def run(world: Any, made: StackPlan, resolver: Resolver | None, stack: Any) -> None:
    with claimed(world, stack) as journal:
        work = StackRun(world, journal, threading.Event(), lambda _: None, 60)
        perform(made, resolver, work)


def recorded_name(world: Any) -> str:
    return load_stack(world, "s").content.resources["ToHook"].name


def test_a_look_changes_nothing(world: Any) -> None:
    world.sns.attributes = dict(PROPERTIES)
    live = SubscriptionKind().look(world, "", PROPERTIES)
    assert live is not None
    assert live.name == ""
    assert world.sns.calls == ["ListSubscriptionsByTopic"]


def test_a_confirmed_one_is_listed_with_its_arn(world: Any) -> None:
    world.sns.attributes = dict(PROPERTIES)
    world.sns.is_confirmed = True
    live = SubscriptionKind().look(world, "", PROPERTIES)
    assert live is not None
    assert live.name == ARN


def test_it_is_asked_to_confirm_once_when_it_is_made(world: Any) -> None:
    made, *rest = plan(world)
    assert [step.action for step in made.steps] == [Action.CREATE]
    run(world, made, *rest)
    assert world.sns.calls.count("Subscribe") == 1
    assert recorded_name(world) == ARN
    again, *_ = plan(world)
    assert not again.changes_anything
    stack = load_stack(world, "s")
    run(world, plan_removal(stack.content), None, stack)
    assert world.sns.calls.count("Subscribe") == 1
    assert world.sns.attributes is None


def test_one_of_a_run_that_broke_off_is_taken_up_when_it_goes_on(world: Any) -> None:
    world.sns.breaks_off = True
    with pytest.raises(Crash):
        run(world, *plan(world))
    world.sns.breaks_off = False
    assert recorded_name(world) == ""
    world.sns.calls.clear()
    made, *rest = plan(world)
    assert [step.action for step in made.steps] == [Action.FINISH]
    assert world.sns.calls == ["ListSubscriptionsByTopic"]
    run(world, made, *rest)
    assert recorded_name(world) == ARN


def test_one_that_is_not_the_stack_s_is_left_alone_unless_it_is_adopted(world: Any) -> None:
    world.sns.attributes = dict(PROPERTIES)
    with pytest.raises(AlreadyExists, match="not the stack's"):
        plan(world)
    assert set(world.sns.calls) == {"ListSubscriptionsByTopic"}
    run(world, *plan(world, adopt=True))
    assert recorded_name(world) == ARN
