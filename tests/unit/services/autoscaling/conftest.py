"""Application Auto Scaling on a state of its own, with a fleet and alarms in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import pytest
from botocore.validate import ParamValidator

from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.dimensions import INSTANCES
from sagehen.services.autoscaling.invocations import PolicyInvocations
from sagehen.services.autoscaling.loop import ScalingLoop
from sagehen.services.autoscaling.operations import OPERATIONS
from sagehen.services.autoscaling.resources import Capacity
from sagehen.services.messaging.sqs.arrivals import Arrivals
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import Leadership
from sagehen.wire.errors import AwsError
from support.clock import HandClock
from support.state import settings_of

MODEL = botocore.session.get_session().get_service_model("application-autoscaling")
RESOURCE = "endpoint/e/variant/v"


@dataclass
class Fleet:
    """Resources in memory: a new count is reached when the test says so."""

    counts: dict[str, int] = field(default_factory=lambda: {RESOURCE: 2})
    settled: bool = True
    least: int = 1
    deployment: str = "d1"
    refusal: AwsError | None = None
    unregistrable: str | None = None
    failure: str | None = None
    changes: int = 0

    def capacity(self, _: Any, resource_id: str, dimension: str) -> Capacity | None:
        if resource_id not in self.counts:
            return None
        return Capacity(
            desired=self.counts[resource_id],
            current=self.counts[resource_id],
            is_settled=self.settled,
            not_scalable=None if self.settled else "Endpoint e is Updating.",
            minimum_allowed=self.least,
            unregistrable=self.unregistrable,
            failure=self.failure,
            deployment=self.deployment,
        )

    def capacities(self, connection: Any, keys: Any) -> dict[tuple[str, str], Capacity]:
        found = {key: self.capacity(connection, *key) for key in keys}
        return {key: capacity for key, capacity in found.items() if capacity is not None}

    def version(self, _: Any) -> object:
        return dict(self.counts), self.settled, self.deployment

    def set_desired(self, _: Any, resource_id: str, dimension: str, count: int, now: float) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.counts[resource_id] = count
        self.settled = False
        self.changes += 1


@dataclass
class KeptAlarms:
    """Alarms in memory."""

    definitions: dict[str, Any] = field(default_factory=dict)
    refusal: AwsError | None = None

    def put(self, _: Any, definition: Any, now: float) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.definitions[definition["AlarmName"]] = definition
        return f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{definition['AlarmName']}"

    def delete(self, _: Any, names: Any, now: float) -> None:
        for name in names:
            self.definitions.pop(name, None)


class Called(NamedTuple):
    action_arn: str
    alarm_name: str
    threshold: float
    comparison: str
    values: tuple[float, ...]


class Scaling:
    """`scaling.PutScalingPolicy(…)` does the operation, on the endpoint's variant."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.clock = HandClock(1_800_000_000.0)
        self.fleet = Fleet()
        self.alarms = KeptAlarms()
        self.events: list[Any] = []
        self.settings = settings_of(home)
        self.autoscaler = Autoscaler(
            self.fleet, self.alarms, lambda _, event: self.events.append(event)
        )

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        act = OPERATIONS[operation]
        shape = MODEL.operation_model(operation).output_shape

        def operate(**params: Any) -> dict[str, Any]:
            members = MODEL.operation_model(operation).input_shape.members
            given = {
                "ServiceNamespace": "sagemaker",
                "ResourceId": RESOURCE,
                "ScalableDimension": INSTANCES,
            } | params
            answer = act(self.call(), {name: given[name] for name in given if name in members})
            # The answer as the client gets it, without what is None.
            answer = {name: value for name, value in answer.items() if value is not None}
            report = ParamValidator().validate(_plain(answer), shape)
            assert not report.has_errors(), report.generate_report()
            return answer

        return operate

    def call(self) -> RequestContext:
        return RequestContext(
            settings=self.settings,
            database=self.database,
            writes=GroupCommit(self.database),
            objects=None,
            clock=self.clock,
            arns=ArnMaker("000000000000", "us-east-1"),
            request_id="r",
            hint=lambda: None,
            seal=str,
            arrivals=Arrivals(10),
            autoscaling=self.autoscaler,
        )

    def register(self, minimum: int = 1, maximum: int = 10, **more: Any) -> str:
        bounds = {"MinCapacity": minimum, "MaxCapacity": maximum}
        arn: str = self.RegisterScalableTarget(**bounds, **more)["ScalableTargetARN"]
        return arn

    def track(self, name: str = "p", target: float = 50, **more: Any) -> dict[str, Any]:
        """Put a policy that tracks the invocations of each instance."""
        metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        configuration = {"TargetValue": target, "PredefinedMetricSpecification": metric, **more}
        return self.PutScalingPolicy(
            PolicyName=name,
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration=configuration,
        )

    def step(self, name: str = "s", change: int = 1, **more: Any) -> dict[str, Any]:
        steps = [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": change}]
        configuration = {
            "AdjustmentType": "ChangeInCapacity",
            "StepAdjustments": steps,
            **more,
        }
        return self.PutScalingPolicy(
            PolicyName=name, PolicyType="StepScaling", StepScalingPolicyConfiguration=configuration
        )

    def alarm(
        self, arn: str, *values: float, threshold: float = 50, low: bool = False
    ) -> str | None:
        """An alarm in ALARM calls the policy."""
        comparison = "LessThanThreshold" if low else "GreaterThanThreshold"
        call = Called(arn, "low" if low else "high", threshold, comparison, values)
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        with self.database.write() as connection:
            return PolicyInvocations(self.autoscaler).invoke(connection, call, now)

    def settle(self) -> None:
        """The fleet is as large as it was to be, and the loop sees it."""
        self.fleet.settled = True
        self.look()

    def look(self) -> float | None:
        """One step of the loop."""
        loop = ScalingLoop(
            self.database,
            self.autoscaler,
            self.clock,
            Leadership(self.database, self.clock, "here"),
        )
        lease: Any = loop._lease.lease
        with self.database.write() as connection:
            lease.acquire(connection, self.clock.now())
        return loop._step()

    def activities(self, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.DescribeScalingActivities(**more)["ScalingActivities"]
        return found

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds


def _plain(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _plain(value) for name, value in answer.items() if value is not None}
    return [_plain(one) for one in answer] if isinstance(answer, list) else answer


@pytest.fixture
def scaling(database: Database, tmp_path: Path) -> Scaling:
    return Scaling(database, tmp_path)


@pytest.fixture
def refused() -> Callable[..., str]:
    """`refused(call, code)`: the message of the error that `call()` raises."""

    def message_of(call: Callable[[], object], code: str = "ValidationException") -> str:
        with pytest.raises(AwsError) as caught:
            call()
        assert (caught.value.code, caught.value.status) == (code, 400)
        return caught.value.message

    return message_of
