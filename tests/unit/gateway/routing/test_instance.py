"""An instance's requests in flight, here and at other gateways."""

import pytest

from sagehen.frame.routes import INFLIGHT_COLUMNS, InstanceRoute
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.inflight import ROW_BYTES, InflightTable
from sagehen.gateway.routing.instance import RoutedInstance, Stage
from sagehen.http1.pool import Pool
from support.clock import HandClock


@pytest.fixture
def tables() -> list[InflightTable]:
    """Of two gateways."""
    cells = memoryview(bytearray(2 * ROW_BYTES)).cast("q")
    return [InflightTable(cells, row) for row in range(2)]


def routed(table: InflightTable, column: int | None = 3, slots: int = 2, **more) -> RoutedInstance:
    route = InstanceRoute(instance_id="i-1", address="unix:/x", slots=slots, inflight_column=column)
    return RoutedInstance(route, HandClock(), table, **more)


def test_other_gateways_requests_take_slots(tables):
    here, there = (routed(table) for table in tables)
    here.acquire_slot()
    assert (here.is_free, there.outstanding) == (True, 1)
    there.acquire_slot()
    assert not here.is_free
    there.release_slot()
    assert here.is_free


@pytest.mark.parametrize("column", [None, -1, INFLIGHT_COLUMNS])
def test_without_a_column_each_gateway_counts_for_itself(tables, column):
    here, there = (routed(table, column) for table in tables)
    here.acquire_slot()
    assert (here.outstanding, there.outstanding, here.column) == (1, 0, None)


def test_a_retired_instance_is_counted_until_it_leaves_its_column(tables):
    here, there = (routed(table) for table in tables)
    here.acquire_slot()
    here.retire()
    assert (here.is_retired, here.outstanding, there.outstanding) == (True, 1, 1)
    here.leave_column()
    assert (here.outstanding, there.outstanding) == (1, 0)
    here.release_slot()
    assert (here.outstanding, there.outstanding) == (0, 0)
    assert here.upstreams.is_done


def test_there_is_one_slot_at_least(tables):
    assert routed(tables[0], slots=0).slots == 1


def test_a_container_invoked_directly_holds_models_of_its_own(tables):
    assert routed(tables[0]).model_holder_id == "i-1"
    assert routed(tables[0], hostname="b").model_holder_id == "i-1/containers/b"


def test_a_pipeline_has_the_pools_of_its_containers(tables):
    pools = [Pool(f"unix:/{name}", HandClock()) for name in "ab"]
    stages = tuple(
        Stage("a", pool, False, VariantCounters(endpoint="e", variant="v")) for pool in pools
    )
    instance = routed(tables[0], stages=stages)
    assert instance.all_upstreams == tuple(pools)
    assert instance.upstreams is pools[0]
