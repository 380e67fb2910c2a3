"""One pass over the rows: what comes before what, and what a failure in the middle leaves."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from sqlalchemy import Connection

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import RouteTable
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.demand import CallDemand, StartRequests, WaitingCalls
from sagehen.services.sagemaker.hosting.reconciler.calls import OnDemand
from sagehen.services.sagemaker.hosting.reconciler.columns import columns_of
from sagehen.services.sagemaker.hosting.reconciler.draining import Draining
from sagehen.services.sagemaker.hosting.reconciler.endpoints import ClusterNodes, EndpointPass
from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile, routed_ids
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from sagehen.state.leases import Lease, LeaseLost
from support.clock import HandClock
from support.fleet import NAME, counted_ids, deployment, endpoint, instance, report, serverless

NOW = 100.0
IN_SERVICE = InstanceState.IN_SERVICE
D1 = deployment("d1", 1)
SERVING = endpoint(EndpointStatus.IN_SERVICE, current=D1)
I1 = instance("i1", "d1", IN_SERVICE)
ALL_WELL = {"i1": report("i1", IN_SERVICE)}


class FullDisk(Database):
    """Reads, and can write nothing."""

    @contextmanager
    def write(self) -> Iterator[Connection]:
        raise OSError("No space left on device")
        yield


@pytest.fixture
def lease(database) -> Lease:
    lease = Lease(name="endpoints", holder="one", ttl_seconds=10)
    with database.write() as connection:
        assert lease.acquire(connection, NOW)
    return lease


@pytest.fixture
def make_pass(home, lease, database):
    def make(state: Database = database) -> EndpointPass:
        return EndpointPass(state, RouteFile(home.routes), lease, counted_ids())

    return make


def add(database, record, *rows) -> None:
    with database.write() as connection:
        endpoints.insert(connection, record)
        for row in rows:
            instances.insert(connection, row)


def table(home) -> RouteTable:
    return msgspec.json.decode(home.routes.read_bytes(), type=RouteTable)


def routed(home) -> set[str]:
    return routed_ids(table(home).routes)


def test_a_new_instance_is_a_row_before_it_is_asked_for(database, make_pass) -> None:
    add(database, endpoint(EndpointStatus.CREATING, target=D1))

    asks = make_pass().run({}, NOW)

    with database.read() as connection:
        (row,) = instances.all(connection)
    assert asks.start == (row.spec,)


def test_dead_addresses_leave_the_routes_even_where_no_row_can_be_written(
    database, home, make_pass
) -> None:
    add(database, SERVING, I1)
    make_pass().run(ALL_WELL, NOW)
    assert routed(home) == {"i1"}
    full = FullDisk(str(database.engine.url))

    with pytest.raises(OSError, match="No space"):
        make_pass(full).run({}, NOW)
    full.close()

    assert routed(home) == set()


def test_nothing_is_stopped_while_gateways_may_send_to_it(database, home, make_pass) -> None:
    """A control was killed after it retired an instance and before it published that."""
    add(database, SERVING, I1)
    make_pass().run(ALL_WELL, NOW)
    retired = instance("i1", "d1", IN_SERVICE, stop_at=NOW)
    with database.write() as connection:
        instances.update(connection, retired)
    taken_up = make_pass()

    first = taken_up.run(ALL_WELL, NOW + 9)
    later = taken_up.run(ALL_WELL, first.wake_at)

    assert first.stop == ()
    assert later.stop == ("i1",)


def test_an_instance_that_leaves_ends_its_requests_first(database, home, lease) -> None:
    """Also where control restarts meanwhile, and others come and go."""
    requests = {0: 1}
    draining = Draining(540.0, lambda column: requests.get(column, 0))

    def take(now: float, reported, control: EndpointPass):
        return control.run({key: report(key, IN_SERVICE) for key in reported}, now)

    def make() -> EndpointPass:
        new_id = counted_ids("new")
        return EndpointPass(database, RouteFile(home.routes), lease, new_id, draining=draining)

    add(database, endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 2)))
    for name in ("i1", "i2"):
        with database.write() as connection:
            instances.insert(connection, instance(name, "d1", IN_SERVICE))
    control = make()
    take(NOW, ("i1", "i2"), control)
    assert columns_of(table(home).routes) == {"i1": 0, "i2": 1}
    updated = deployment("d2", 1)
    with database.write() as connection:
        record = endpoints.get_for_update(connection, NAME)
        changed = msgspec.structs.replace(record, status=EndpointStatus.UPDATING, target=updated)
        endpoints.update(connection, changed)
    (spec,) = take(NOW, ("i1", "i2"), control).start
    new = spec.instance_id
    take(NOW, ("i1", "i2", new), control)
    assert table(home).leaving == {"i1": (0,), "i2": (1,)}
    assert columns_of(table(home).routes) == {new: 2}

    control = make()
    first = take(NOW + 2, ("i1", "i2", new), control)
    assert first.stop == ("i2",)
    later = take(NOW + 60, ("i1", new), control)
    assert (later.stop, later.settled) == ((), False)
    assert later.wake_at is not None
    assert table(home).leaving == {"i1": (0,)}
    requests.clear()
    assert take(NOW + 61, ("i1", new), control).stop == ("i1",)
    take(NOW + 62, (new,), control)
    assert table(home).leaving == {}
    assert draining.hits == 0


def test_an_instance_that_goes_on_for_too_long_is_stopped_and_counted(
    database, home, lease, caplog
) -> None:
    draining = Draining(5.0, lambda column: 1)
    control = EndpointPass(
        database, RouteFile(home.routes), lease, counted_ids(), draining=draining
    )
    two = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 2))
    add(database, two, I1, instance("i2", "d1", IN_SERVICE))
    reports = ALL_WELL | {"i2": report("i2", IN_SERVICE)}
    control.run(reports, NOW)
    with database.write() as connection:
        endpoints.update(connection, msgspec.structs.replace(SERVING, modified_at=2.0))
    control.run(reports, NOW)

    assert control.run(reports, NOW + 5.9).stop == ()
    assert control.run(reports, NOW + 6).stop == ("i2",)
    assert control.run(reports, NOW + 7).stop == ("i2",)
    assert draining.hits == 1
    (record,) = [one for one in caplog.records if getattr(one, "action", "") == "drain_cut_off"]
    assert (record.instance, record.endpoint) == ("i2", NAME)


def test_a_lost_lease_writes_nothing(database, lease, make_pass) -> None:
    add(database, endpoint(EndpointStatus.CREATING, target=D1))
    with database.write() as connection:
        lease.release(connection)

    with pytest.raises(LeaseLost):
        make_pass().run({}, NOW)

    with database.read() as connection:
        assert instances.all(connection) == []


def test_a_table_of_the_next_leader_is_not_overwritten(database, home, lease) -> None:
    """It is sent to the agent of this machine, which writes it into the same file."""
    cluster = ClusterNodes(routes=dict, leaving=frozenset)
    control = EndpointPass(
        database, RouteFile(home.routes), lease, counted_ids(), lambda: None, cluster=cluster
    )
    add(database, SERVING, I1)
    control.run(ALL_WELL, NOW)
    with database.write() as connection:
        lease.release(connection)
    newer = msgspec.json.encode(RouteTable(routes={}, version=1000))
    home.routes.write_bytes(newer)

    with pytest.raises(LeaseLost):
        control.run({}, NOW)

    assert home.routes.read_bytes() == newer


def test_a_new_leader_sends_its_table_after_its_first_pass_also_if_it_is_the_same(
    database, home, lease
) -> None:
    sent = []

    def take_over() -> EndpointPass:
        cluster = ClusterNodes(routes=dict, leaving=frozenset)
        return EndpointPass(
            database,
            RouteFile(home.routes),
            lease,
            counted_ids(),
            lambda: sent.append(table(home).version),
            cluster=cluster,
        )

    add(database, SERVING, I1)
    control = take_over()
    control.run(None, NOW)
    assert sent == [], "it does not know yet where the instances are"
    for _ in range(2):
        control.run(ALL_WELL, NOW)
    take_over().run(ALL_WELL, NOW)
    control.take_over()
    for _ in range(2):
        control.run(ALL_WELL, NOW)
    assert sent == [1, 1, 1]


def test_what_an_endpoint_needed_that_went_in_a_failing_pass_is_not_kept(
    database, lease, make_pass, monkeypatch
) -> None:
    """Its images would stay warm until control ends."""
    control = make_pass()
    gone = endpoint(EndpointStatus.IN_SERVICE, name="A", current=serverless())
    add(database, gone)
    add(database, endpoint(EndpointStatus.IN_SERVICE, name="B", current=D1))
    assert control.run({}, NOW).warm_images == ("python",)
    with database.write() as connection:
        deleting = msgspec.structs.replace(gone, status=EndpointStatus.DELETING, modified_at=2.0)
        endpoints.update(connection, deleting)
    with monkeypatch.context() as patch:
        patch.setattr(control, "_note", broken)
        with pytest.raises(RuntimeError):
            control.run({}, NOW)
    with database.read() as connection:
        assert endpoints.get(connection, "A") is None

    assert control.run({}, NOW).warm_images == ()


def broken(*_: object) -> None:
    raise RuntimeError


def test_an_idle_pass_writes_nothing(database, make_pass) -> None:
    add(database, SERVING, I1)
    make_pass().run(ALL_WELL, NOW)
    full = FullDisk(str(database.engine.url))

    asks = make_pass(full).run(ALL_WELL, NOW)
    full.close()

    assert (asks.start, asks.stop, asks.wake_at) == ((), (), None)


def test_endpoints_of_one_pass_do_not_mix(database, make_pass) -> None:
    add(database, endpoint(EndpointStatus.CREATING, name="One", target=D1))
    add(database, endpoint(EndpointStatus.CREATING, name="Two", target=deployment("d2", 2)))

    asks = make_pass().run({}, NOW)

    assert sorted(spec.endpoint_name for spec in asks.start) == ["One", "Two", "Two"]


def test_who_reads_in_service_may_invoke_at_once(database, home, make_pass) -> None:
    add(database, endpoint(EndpointStatus.CREATING, target=D1), instance("i1", "d1"))
    full = FullDisk(str(database.engine.url))

    with pytest.raises(OSError, match="No space"):
        make_pass(full).run(ALL_WELL, NOW)
    full.close()

    assert routed(home) == {"i1"}


def test_each_status_that_it_comes_to_is_an_event(database, make_pass, monkeypatch):
    told = []
    monkeypatch.setattr(
        "sagehen.services.sagemaker.hosting.reconciler.endpoints.put_event",
        lambda connection, event: told.append(event.detail["EndpointStatus"]),
    )
    add(database, endpoint(EndpointStatus.CREATING, target=D1))
    loop = make_pass()
    loop.run({}, NOW)
    with database.read() as connection:
        (made,) = instances.all(connection)
    for _ in range(3):
        loop.run({made.instance_id: report(made.instance_id, IN_SERVICE)}, NOW)
    assert told == ["IN_SERVICE"]


# Instances on demand


class Calls:
    """What gateways say, and the metrics that are recorded."""

    def __init__(self) -> None:
        self.clock = HandClock(NOW)
        self.recorded: list[tuple[str, dict[str, str], float]] = []
        self.demand = CallDemand(self.clock, idle_seconds=300)
        self.on_demand = OnDemand(
            demand=self.demand,
            idle_seconds=300,
            max_instances=2,
            free_memory=lambda: 2**40,
            record=lambda *value: self.recorded.append(value),
        )

    def wait(self, *names: str, instances: int = 0) -> None:
        waiting = (
            WaitingCalls(endpoint=name, variant="a", calls=1, instances=instances) for name in names
        )
        self.demand.note_waiting(StartRequests(waiting=tuple(waiting)))


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def take(home, lease, database, calls):
    """`take(reports)`: one pass of a control that has just started."""
    ids = counted_ids()

    def turn(reports):
        routes = RouteFile(home.routes)
        control = EndpointPass(database, routes, lease, ids, on_demand=calls.on_demand)
        return control.run(reports, calls.clock.now())

    return turn


def running(database, name: str) -> dict[str, int] | None:
    with database.read() as connection:
        return endpoints.get(connection, name).running


def test_a_call_raises_the_count_before_an_instance_is_asked_for(database, calls, take) -> None:
    add(database, endpoint(EndpointStatus.IN_SERVICE, current=serverless()))
    calls.wait("Houses")
    requests = take({})
    assert running(database, "Houses") == {"a": 1}
    assert [spec.instance_id for spec in requests.start] == ["new-2"]  # planned twice


def test_a_control_that_was_killed_then_asks_for_it(database, calls, take) -> None:
    """Between the row and the agent; the message, which was in memory, is lost too."""
    add(database, endpoint(EndpointStatus.IN_SERVICE, current=serverless()))
    calls.wait("Houses")
    take({})
    calls.demand.follow({})
    requests = take({})
    assert [spec.instance_id for spec in requests.start] == ["new-2"]  # planned twice


def test_all_endpoints_share_the_number_of_instances(database, calls, take) -> None:
    names = ["One", "Three", "Two"]
    for number, name in enumerate(names):
        current = serverless(identity=f"d{number}")
        add(database, endpoint(EndpointStatus.IN_SERVICE, name=name, current=current))
    calls.wait(*names)
    assert len(take({}).start) == 2
    assert [running(database, name) for name in names] == [{"a": 1}, {"a": 1}, None]


def test_an_idle_instance_is_due_when_its_time_is_over(database, calls, take) -> None:
    record = endpoint(EndpointStatus.IN_SERVICE, current=serverless(), running={"a": 1})
    add(database, record, I1)
    assert take(ALL_WELL).idle_at == NOW + 300
    calls.clock.seconds += 300
    take(ALL_WELL)
    assert running(database, "Houses") is None


def test_a_start_is_measured_once(database, calls, take) -> None:
    record = endpoint(EndpointStatus.IN_SERVICE, current=serverless(), running={"a": 1})
    row = instance("i1", "d1")
    spec = msgspec.structs.replace(row.spec, instance_type="serverless-1024MB")
    add(database, record, msgspec.structs.replace(row, spec=spec))
    reports = {"i1": msgspec.structs.replace(report("i1", IN_SERVICE), setup_seconds=0.5)}
    take(reports)
    take(reports)
    dimensions = {"EndpointName": "Houses", "VariantName": "a"}
    assert calls.recorded == [("ModelSetupTime", dimensions, 500_000)]


def test_what_gateways_are_told_of_it(database, home, calls, take) -> None:
    add(database, endpoint(EndpointStatus.IN_SERVICE, current=serverless(5, provisioned=2)))
    take({})
    table = msgspec.json.decode(home.routes.read_bytes(), type=RouteTable)
    on_demand = table.routes["Houses"].variants[0].on_demand
    assert on_demand is not None
    assert (on_demand.max_concurrency, on_demand.provisioned_concurrency) == (5, 2)
    assert on_demand.inflight_column == 0


def test_images_of_what_calls_start_are_kept_warm(database, calls, take) -> None:
    assert take({}).warm_images == ()
    add(database, endpoint(EndpointStatus.IN_SERVICE, current=serverless()))
    add(
        database,
        endpoint(EndpointStatus.IN_SERVICE, name="Other", current=serverless(identity="d2")),
    )
    (container,) = serverless().variants[0].containers
    assert take({}).warm_images == (container.image,)


@pytest.mark.parametrize(
    "record",
    [
        SERVING,
        endpoint(EndpointStatus.CREATING, target=serverless()),
        endpoint(EndpointStatus.DELETING, current=serverless()),
    ],
)
def test_no_image_is_of_other_endpoints(database, calls, take, record) -> None:
    add(database, record)
    assert take({}).warm_images == ()
