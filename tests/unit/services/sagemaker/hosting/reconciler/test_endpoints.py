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
from sagehen.services.sagemaker.hosting.reconciler.endpoints import EndpointPass
from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile, routed_ids
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from sagehen.state.leases import Lease, LeaseLost
from support.fleet import counted_ids, deployment, endpoint, instance, report

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


def routed(home) -> set[str]:
    return routed_ids(msgspec.json.decode(home.routes.read_bytes(), type=RouteTable).routes)


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


def test_a_lost_lease_writes_nothing(database, lease, make_pass) -> None:
    add(database, endpoint(EndpointStatus.CREATING, target=D1))
    with database.write() as connection:
        lease.release(connection)

    with pytest.raises(LeaseLost):
        make_pass().run({}, NOW)

    with database.read() as connection:
        assert instances.all(connection) == []


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
