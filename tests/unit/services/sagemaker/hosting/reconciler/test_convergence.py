"""Whatever happens in whatever order, every endpoint ends where it should and nothing leaks.

The world here is rows, an agent and a control that can be killed between any two of its moves; what
is decided is decided by the real plan and the real routes.
"""

import itertools
from collections.abc import Iterator

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.frame.routes import Route
from sagehen.services.sagemaker.hosting.demand import NO_USE, VariantUse
from sagehen.services.sagemaker.hosting.reconciler.on_demand import Room
from sagehen.services.sagemaker.hosting.reconciler.plan import (
    DELETED_DRAIN_SECONDS,
    EndpointStep,
    Facts,
    Retry,
    leftovers,
    plan,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import (
    Departures,
    build_routes,
    routed_ids,
)
from sagehen.services.sagemaker.hosting.reconciler.rows import (
    EndpointRows,
    make_rows,
    rows_after,
)
from sagehen.services.sagemaker.hosting.records import (
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
)
from support.fleet import counted_ids, deployment, endpoint, report, serverless

STARTING, IN_SERVICE = InstanceState.STARTING, InstanceState.IN_SERVICE
STOPPING, FAILED = InstanceState.STOPPING, InstanceState.FAILED
NAMES = st.sampled_from(["One", "Two"])
COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=2)
ROOM = Room(idle_seconds=5.0, free_instances=100, free_memory_bytes=2**40)
DRAIN = 20.0
"""seconds that an instance goes on for its requests"""
STABLE = (EndpointStatus.IN_SERVICE, EndpointStatus.FAILED)


class World(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.uses: dict[str, VariantUse] = {}
        self.endpoints: dict[str, EndpointRecord] = {}
        self.instances: dict[str, InstanceRecord] = {}
        self.agent: dict[str, InstanceReport] = {}
        self.routes: dict[str, Route] = {}
        self.left_routes_at: dict[str, float] = {}
        self.called: set[str] = set()
        self.new_id = counted_ids("i")
        self.deployment_ids = (f"d{number}" for number in itertools.count())
        self._restart_control()
        self.create_endpoint("One", [2])
        self.create_endpoint("Two", [1, 1])
        self._good_second()
        self._good_second()

    # What users do.

    @rule(name=NAMES, counts=COUNTS)
    def create_endpoint(self, name: str, counts: list[int]) -> None:
        if name not in self.endpoints:
            target = deployment(next(self.deployment_ids), *counts)
            self.endpoints[name] = endpoint(EndpointStatus.CREATING, name=name, target=target)

    @rule(name=NAMES)
    def create_serverless_endpoint(self, name: str) -> None:
        if name not in self.endpoints:
            target = serverless(identity=next(self.deployment_ids))
            self.endpoints[name] = endpoint(EndpointStatus.CREATING, name=name, target=target)

    @rule(name=NAMES)
    def become_serverless(self, name: str) -> None:
        self._update(name, serverless(identity=next(self.deployment_ids)))

    @rule(name=NAMES, waiting=st.booleans())
    def calls_come(self, name: str, waiting: bool) -> None:
        self.uses[name] = VariantUse(waiting=int(waiting), last_used_at=self.now)

    @rule(name=NAMES, counts=COUNTS)
    def update_endpoint(self, name: str, counts: list[int]) -> None:
        self._update(name, deployment(next(self.deployment_ids), *counts))

    @rule(name=NAMES, count=st.integers(0, 3), weight=st.floats(0, 2))
    def update_weights_and_capacities(self, name: str, count: int, weight: float) -> None:
        record = self.endpoints.get(name)
        if record is not None and record.current is not None:
            counts = [one.instance_count for one in record.current.variants]
            identity = record.current.deployment_id
            self._update(name, deployment(identity, count, *counts[1:], weight=weight))

    @rule(name=NAMES)
    def delete_endpoint(self, name: str) -> None:
        self._replace(name, status=EndpointStatus.DELETING)

    def _update(self, name: str, target: object) -> None:
        record = self.endpoints.get(name)
        if record is not None and record.status is EndpointStatus.IN_SERVICE:
            self._replace(name, status=EndpointStatus.UPDATING, target=target)

    def _replace(self, name: str, **changes: object) -> None:
        if name in self.endpoints:
            self.endpoints[name] = msgspec.structs.replace(self.endpoints[name], **changes)

    @rule(which=st.integers(0, 5))
    def a_long_request_begins(self, which: int) -> None:
        routed = sorted(routed_ids(self.routes))
        if routed:
            self.called.add(routed[which % len(routed)])

    @rule()
    def long_requests_end(self) -> None:
        self.called.clear()

    # What happens to instances.

    @rule(which=st.integers(0, 5), state=st.sampled_from([STARTING, IN_SERVICE, FAILED]))
    def an_instance_changes(self, which: int, state: InstanceState) -> None:
        alive = sorted(key for key, one in self.agent.items() if one.state is not STOPPING)
        if alive:
            chosen = alive[which % len(alive)]
            self.agent[chosen] = report(chosen, state)

    def _stopped_instances_end(self) -> None:
        for key in [key for key, one in self.agent.items() if one.state is STOPPING]:
            del self.agent[key]

    @rule()
    def the_agent_dies(self) -> None:
        self.agent.clear()

    @rule(seconds=st.sampled_from([0.1, 1.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._stopped_instances_end()

    # What control does, one move at a time.

    @rule(
        moves=st.integers(1, 12),
        sees=st.sampled_from(["what is", "what was", "nothing"]),
        then_dies=st.booleans(),
    )
    def control_moves(self, moves: int, sees: str, then_dies: bool) -> None:
        for _ in range(moves):
            if sees != "what was":
                self.reports = dict(self.agent) if sees == "what is" else None
            if next(self.moves, None) is None:
                self.moves = self._pass()
        if then_dies:
            self._restart_control()

    @rule(seconds=st.integers(1, 3))
    def all_goes_well(self, seconds: int) -> None:
        for _ in range(seconds):
            self._good_second()

    def _restart_control(self) -> None:
        self.now += DELETED_DRAIN_SECONDS  # a process takes longer than that to come up
        self.reports: dict[str, InstanceReport] | None = None
        self.retries: dict[str, Retry] = {}
        self.departures = Departures()
        self.moves = self._pass()

    def _pass(self) -> Iterator[str]:
        """What EndpointPass.run and the loop do; whatever else happens comes at the yields."""
        reports = self.reports
        rows = self._rows()
        planned = {name: self._plan(name, reports) for name in rows.names}
        self._publish(rows_after(rows, planned), reports)
        yield "published"
        steps = []
        for name in rows.names:
            steps.append(self._step(name, reports) if planned[name].writes else planned[name])
            yield "written"
        self.retries = {key: one for step in steps for key, one in step.retries.items()}
        known = set(self.instances)
        self._publish(self._rows(), reports)
        yield "published"
        for spec in [spec for step in steps for spec in step.start]:
            self._put(spec)
            yield "asked to start"
        extra = leftovers(known, reports) if reports is not None else ()
        stop = [key for step in steps for key in step.stop] + list(extra)
        for key in [key for key in stop if self.departures.settle_at(key, self.now) is None]:
            self._stop(key)
            yield "asked to stop"

    def _rows(self) -> EndpointRows:
        return make_rows(self.endpoints.values(), self.instances.values())

    def _plan(self, name: str, reports: dict[str, InstanceReport] | None) -> EndpointStep:
        mine = [one for one in self.instances.values() if one.endpoint_name == name]
        return plan(
            Facts(
                endpoint=self.endpoints.get(name),
                instances=tuple(mine),
                reports=reports,
                retries=self.retries,
                called=frozenset(self.called),
                drain_seconds=DRAIN,
                uses={"a": self.uses.get(name, NO_USE)},
                room=ROOM,
                now=self.now,
            ),
            self.new_id,
        )

    def _step(self, name: str, reports: dict[str, InstanceReport] | None) -> EndpointStep:
        step = self._plan(name, reports)
        for one in (*step.added, *step.changed):
            self.instances[one.instance_id] = one
        for key in step.dropped:
            del self.instances[key]
        if step.endpoint is not None:
            self.endpoints[name] = step.endpoint
        if step.gone is not None:
            del self.endpoints[name]
        return step

    def _publish(self, rows: EndpointRows, reports: dict[str, InstanceReport] | None) -> None:
        routes = build_routes(rows.endpoints.values(), rows.instances, reports, {})
        assert routed_ids(routes) <= set(self.instances)
        self._check_no_variant_emptied(rows, routes, reports)
        heard = reports if reports is not None else self.instances
        for key in routed_ids(self.routes) - routed_ids(routes):
            if key in heard and heard[key].state is IN_SERVICE:
                self.left_routes_at[key] = self.now
        self.departures.note(self.routes, routes, self.now)
        self.routes = routes

    def _check_no_variant_emptied(
        self,
        rows: EndpointRows,
        routes: dict[str, Route],
        reports: dict[str, InstanceReport] | None,
    ) -> None:
        """What serves is not taken away where nothing serves in its place."""
        heard = reports if reports is not None else self.instances
        before = _by_variant(self.routes)
        for key, after in _by_variant(routes).items():
            if not after and _wants(rows.endpoints[key[0]], key[1]):
                lost = [heard[one].state for one in before.get(key, set()) if one in heard]
                assert IN_SERVICE not in lost

    def _put(self, spec: InstanceSpec) -> None:
        known = self.agent.get(spec.instance_id)
        if known is None or known.state is FAILED:
            self.agent[spec.instance_id] = report(spec.instance_id, STARTING)

    def _stop(self, key: str) -> None:
        assert key not in routed_ids(self.routes)
        left_at = self.left_routes_at.get(key)
        if left_at is not None and self.agent.get(key) == report(key, IN_SERVICE):
            # Gateways may still be sending to it until then.
            assert self.now >= left_at + DELETED_DRAIN_SECONDS
            self._check_requests(key)
        if key in self.agent:
            self.agent[key] = report(key, STOPPING)

    def _check_requests(self, key: str) -> None:
        """What has requests is stopped when its time is over, or with its endpoint."""
        row = self.instances.get(key)
        record = row and self.endpoints.get(row.endpoint_name)
        if record and record.status is not EndpointStatus.DELETING and key in self.called:
            assert row.stop_at is not None
            assert self.now >= row.stop_at + DRAIN

    @invariant()
    @precondition(lambda self: hasattr(self, "endpoints"))
    def routes_are_of_records(self) -> None:
        for record in self.endpoints.values():
            if record.status is EndpointStatus.IN_SERVICE:
                assert record.current is not None
                assert record.target is None

    # Once nothing more goes wrong.

    def teardown(self) -> None:
        if not hasattr(self, "endpoints"):
            return
        self.called.clear()
        for _ in range(12 + int(ROOM.idle_seconds)):
            self._good_second()
        before = (dict(self.endpoints), dict(self.instances), dict(self.agent), self.routes)
        self._good_second()
        assert before == (self.endpoints, self.instances, self.agent, self.routes)
        self._check_settled()

    def _good_second(self) -> None:
        self.now += 1.0
        self._stopped_instances_end()
        for key, one in self.agent.items():
            if one.state is STARTING:
                self.agent[key] = report(key, IN_SERVICE)
            if one.state is FAILED:
                self.now += 60.0
        self.reports = dict(self.agent)
        for _ in self.moves:
            pass
        self.moves = self._pass()

    def _check_settled(self) -> None:
        wanted: dict[tuple[str, str], int] = {}
        for name, record in self.endpoints.items():
            assert record.status in STABLE
            if record.status is EndpointStatus.IN_SERVICE:
                assert record.current is not None
                for one in record.current.variants:
                    is_called = one.serverless is not None and self.uses.get(name, NO_USE).waiting
                    wanted[name, one.name] = max(one.instance_count, int(is_called))
        have = dict.fromkeys(wanted, 0)
        for instance in self.instances.values():
            have[instance.endpoint_name, instance.variant_name] += 1
        assert have == wanted
        assert set(self.agent) == set(self.instances)
        assert routed_ids(self.routes) == set(self.instances)


def _wants(record: EndpointRecord, variant_name: str) -> int:
    assert record.current is not None
    return sum(one.instance_count for one in record.current.variants if one.name == variant_name)


def _by_variant(routes: dict[str, Route]) -> dict[tuple[str, str], set[str]]:
    """The ids of the instances of each (endpoint, variant)."""
    return {
        (name, variant.name): {one.instance_id for one in variant.instances}
        for name, route in routes.items()
        for variant in route.variants
    }


World.TestCase.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, database=None
)
TestWorld = World.TestCase
