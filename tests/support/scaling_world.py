"""Endpoints, their alarms and their scaling on one state, by a clock that the test moves.

Control's own parts do the work, one step at a time; only the agent is missing: `settle` says that
all instances are as they are to be.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from botocore import xform_name

from sagehen.app.api.application import OPERATIONS
from sagehen.app.roles.control_scaling import Scaling
from sagehen.app.roles.control_services import AlarmParts
from sagehen.frame.context import RequestContext
from sagehen.frame.statistics import Series, of_values
from sagehen.services.monitoring.cloudwatch.sample_store import add
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.leadership import Leadership
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate
from support.fixtures.api import Server

__all__ = ["ScalingWorld"]

LATE = 7.0
"""seconds after a minute's end, when alarms are evaluated"""


class ScalingWorld:
    """Control's parts for scaling, around the operations of `server`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.database = server.database
        self.clock = server.clock
        self.clock.seconds += LATE
        self._make_plain_call = server.call
        server.call = self.call  # type: ignore[method-assign]
        self.restart()

    def restart(self) -> None:
        """All objects anew, as after a kill of control."""
        settings = self.server.settings
        leadership = Leadership(self.database, self.clock, "here")
        self._alarms = AlarmParts(
            settings, self.database, leadership, lambda *called: self._scaling.invoke(*called)
        )
        arns = self._make_plain_call().arns
        managed = self._alarms.managed
        self._scaling = Scaling(
            self.database,
            arns,
            lambda _: self.call(),
            managed,
            self.clock,
            leadership,
            lambda: None,
        )
        for loop in (self._alarms._loop, self._scaling._loop):
            lease: Any = loop._lease.lease
            with self.database.write() as connection:
                lease.acquire(connection, self.clock.now())

    def call(self) -> RequestContext:
        return replace(
            self._make_plain_call(),
            alarms=self._alarms.changes,
            autoscaling=self._scaling.autoscaler,
        )

    def client(self, name: str) -> "_DirectClient":
        """What boto3's client of that service does, without the wire."""
        return _DirectClient(self, name)

    def record(self, metric: str, dimensions: dict[str, str], value: float) -> None:
        """A sample of the minute that goes on."""
        series = Series("AWS/SageMaker", metric, tuple(sorted(dimensions.items())), "None")
        slot = int((self.clock.now() - LATE) // 60)
        with self.database.write() as connection:
            add(connection, {(series, slot): of_values({value: 1})}, 1000)

    def end_minute(self) -> None:
        """A minute has passed: alarms are evaluated, the loop looks, instances have settled."""
        self.clock.seconds += 60
        self.take_steps()

    def take_steps(self) -> None:
        self.evaluate()
        self.settle()
        self.look()

    def evaluate(self) -> None:
        self._alarms._loop._pass.run(None, self.clock.now())

    def look(self) -> None:
        self._scaling._loop._step()

    def settle(self) -> None:
        with self.database.read() as connection:
            records = endpoints.all(connection)
        for record in records:
            if record.target is None:
                continue
            settled = msgspec.structs.replace(
                record, status=EndpointStatus.IN_SERVICE, current=record.target, target=None
            )
            with self.database.write() as connection:
                endpoints.update(connection, settled)

    def count_of(self, name: str) -> int:
        with self.database.read() as connection:
            record = endpoints.get(connection, name)
        assert record is not None
        shown = record.target or record.current
        assert shown is not None
        return shown.variants[0].instance_count


class _DirectClient:
    def __init__(self, world: ScalingWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._operations = {xform_name(operation): operation for operation in OPERATIONS[name]}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        operation = self._operations[method]
        act: Any = OPERATIONS[self._name][operation]

        def operate(**params: Any) -> Any:
            validate(service(self._name).operation_model(operation), params)
            return act(self._world.call(), params)

        return operate
