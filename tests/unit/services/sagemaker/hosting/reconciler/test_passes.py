"""Passes over what has changed end where passes over everything end."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sagehen.frame.container_specs import InstanceReport, InstanceState
from sagehen.frame.routes import RouteTable
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting import instance_store as instances
from sagehen.services.sagemaker.hosting.reconciler.columns import columns_of
from sagehen.services.sagemaker.hosting.reconciler.endpoints import EndpointPass
from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile, build_routes
from sagehen.services.sagemaker.hosting.reconciler.rows import make_rows
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from sagehen.state.rows import METADATA
from support.fleet import counted_ids, deployment, endpoint, report

NAMES = st.sampled_from(["One", "Two", "Three"])
STATES = st.sampled_from([InstanceState.STARTING, InstanceState.IN_SERVICE, InstanceState.FAILED])


class _AnyLease:
    def check(self, connection, now: float) -> None:
        """Nobody else leads."""


class Passes(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.file = Path(self.folder.name, "routes.json")
        self.database = Database(f"sqlite:///{self.folder.name}/state.db")
        METADATA.create_all(self.database.engine)
        self.now = 1000.0
        self.agent: dict[str, InstanceReport] | None = {}
        self.numbers = itertools.count()
        self.control = EndpointPass(
            self.database, RouteFile(self.file), _AnyLease(), counted_ids("i")
        )
        self.create("One", 2)
        self.take()

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.folder.cleanup()

    # What others do

    @rule(name=NAMES, count=st.integers(1, 2))
    def create(self, name: str, count: int) -> None:
        with self.database.write() as connection:
            if endpoints.get(connection, name) is None:
                made = endpoint(
                    EndpointStatus.CREATING,
                    name=name,
                    modified_at=self.now,
                    target=deployment(f"d{next(self.numbers)}", count),
                )
                endpoints.insert(connection, made)

    @rule(name=NAMES, count=st.integers(0, 3), weight=st.floats(0, 2))
    def change(self, name: str, count: int, weight: float) -> None:
        def updated(record):
            target = deployment(record.current.deployment_id, count, weight=weight)
            return {"status": EndpointStatus.UPDATING, "target": target}

        self._replace(name, updated)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self._replace(name, lambda record: {"status": EndpointStatus.DELETING})

    def _replace(self, name: str, changes) -> None:
        self.now += 0.001
        with self.database.write() as connection:
            record = endpoints.get_for_update(connection, name)
            if record is not None and record.status is EndpointStatus.IN_SERVICE:
                values = {**changes(record), "modified_at": self.now}
                endpoints.update(connection, msgspec.structs.replace(record, **values))

    @rule(which=st.integers(0, 9), state=STATES)
    def an_instance_changes(self, which: int, state: InstanceState) -> None:
        if self.agent:
            chosen = sorted(self.agent)[which % len(self.agent)]
            self.agent[chosen] = report(chosen, state)

    @rule()
    def all_serve(self) -> None:
        if self.agent is not None:
            self.agent = {key: report(key, InstanceState.IN_SERVICE) for key in self.agent}

    @rule(which=st.integers(0, 9))
    def an_instance_is_lost(self, which: int) -> None:
        if self.agent:
            del self.agent[sorted(self.agent)[which % len(self.agent)]]

    @rule()
    def the_agent_goes_or_comes(self) -> None:
        self.agent = {} if self.agent is None else None

    @rule(seconds=st.sampled_from([0.1, 1.0, 70.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # What control does

    @rule()
    def take(self) -> None:
        reports = None if self.agent is None else dict(self.agent)
        self.asked = self.control.run(reports, self.now)
        self.seen = reports, self.now
        if self.agent is not None:
            for spec in self.asked.start:
                self.agent[spec.instance_id] = report(spec.instance_id, InstanceState.STARTING)
            for key in self.asked.stop:
                self.agent.pop(key, None)

    @rule()
    def take_and_compare(self) -> None:
        """A control that plans everything finds nothing left to do but what this one has asked."""
        self.take()
        reports, now = self.seen
        before = self._rows()
        routes = RouteFile(self.file)
        table = routes.routes, routes.leaving
        everything = EndpointPass(self.database, routes, _AnyLease(), counted_ids("wrong"))
        asked = everything.run(reports, now)
        assert self._rows() == before
        assert (routes.routes, routes.leaving) == table
        # A failed instance that is started again is known to this control only.
        again = {key for key in reports or {} if reports[key].state is InstanceState.FAILED}
        started = {spec.instance_id for spec in self.asked.start}
        assert started - again == {spec.instance_id for spec in asked.start}
        assert set(self.asked.stop) <= set(asked.stop)
        assert (self.asked.stores, self.asked.warm_images) == (asked.stores, asked.warm_images)
        assert self.asked.settled == asked.settled or again or asked.stop

    @invariant()
    def published_is_what_rows_say(self) -> None:
        if not hasattr(self, "asked") or not self.file.exists():
            return
        published = msgspec.json.decode(self.file.read_bytes(), type=RouteTable)
        columns = [
            each.inflight_column
            for route in published.routes.values()
            for variant in route.all_variants
            for each in variant.instances
        ]
        assert len(set(columns)) == len(columns)
        owners = {
            column: name
            for name, route in published.routes.items()
            for column in columns_of({name: route}).values()
        }
        assert self.control._live._owners == owners
        assert RouteFile(self.file).routes == self.control._routes.routes

    def _rows(self):
        with self.database.read() as connection:
            return endpoints.all(connection), instances.all(connection)


def test_routes_of_changed_endpoints_beside_all_routes(tmp_path) -> None:
    """The columns, too: an instance keeps its own, and new ones get the lowest that are free."""
    one, two = (
        endpoint(EndpointStatus.IN_SERVICE, name=name, current=deployment(f"d{name}", 2))
        for name in ("One", "Two")
    )
    from sagehen.services.sagemaker.hosting.reconciler.live_routes import LiveRoutes
    from support.fleet import instance

    def group(record, *keys: str):
        return [
            instance(
                key,
                record.current.deployment_id,
                InstanceState.IN_SERVICE,
                endpoint_name=record.name,
            )
            for key in keys
        ]

    live = LiveRoutes()
    reports = {key: report(key, InstanceState.IN_SERVICE) for key in ("i1", "i2", "i3", "i4")}
    first = make_rows([one, two], [*group(one, "i2", "i3"), *group(two, "i4")])
    routes = live.build({}, ["One", "Two"], first, reports)
    assert routes == build_routes(first.endpoints.values(), first.instances, reports, {})
    later = make_rows([one, two], [*group(one, "i1", "i3"), *group(two, "i4")])
    again = live.build(routes, ["One"], later, reports, reserved=[0])
    assert again == build_routes(
        later.endpoints.values(), later.instances, reports, routes, reserved=[0]
    )
    assert again["Two"] is routes["Two"]
    assert live.build(again, ["One", "Two"], later, reports, reserved=[0]) is again


TestPasses = Passes.TestCase
TestPasses.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)
