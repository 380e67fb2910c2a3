from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.base.clock import SYSTEM
from sagehen.frame.routes import (
    InstanceRoute,
    OnDemandRoute,
    Route,
    RouteTable,
    VariantRoute,
)
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.routing.inflight import (
    InflightTable,
    clear_row,
    create_inflight_table,
    open_inflight_table,
)
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.offline_answers import OfflineStores
from sagehen.gateway.routing.routes import Routes
from sagehen.services.sagemaker.hosting.reconciler.columns import assign_columns


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "routes.json"


@pytest.fixture
def inflight(tmp_path: Path) -> InflightTable:
    create_inflight_table(tmp_path / "board", 2)
    return open_inflight_table(tmp_path / "board", 0)


@pytest.fixture
def routes(file: Path, inflight: InflightTable) -> Routes:
    return Routes(file, Counters("1"), SYSTEM, inflight, OfflineStores(file.parent))


def write(
    file: Path,
    weight: float = 1,
    places: tuple[str, ...] = ("i-1",),
    shadow: VariantRoute | None = None,
    slots: int = 1,
    leaving: dict[str, tuple[int, ...]] | None = None,
) -> None:
    columns = {place: ord(place[-1]) for place in places}
    write_places(file, columns, weight, shadow, slots, leaving)


def write_places(
    file: Path,
    columns: dict[str, int],
    weight: float = 1,
    shadow: VariantRoute | None = None,
    slots: int = 1,
    leaving: dict[str, tuple[int, ...]] | None = None,
) -> None:
    """A table with these instances and their columns of the in-flight table."""
    instances = tuple(
        InstanceRoute(
            instance_id=place,
            address=f"unix:/{place}",
            inflight_column=column,
            slots=slots,
        )
        for place, column in columns.items()
    )
    variant = VariantRoute(name="All", weight=weight, instances=instances)
    route = Route(endpoint_name="price", variants=(variant,), shadow=shadow)
    table = RouteTable(routes={"price": route}, leaving=leaving or {})
    draft = file.with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(table))
    draft.replace(file)


def test_without_a_file_there_are_no_routes(routes):
    assert not routes.refresh()
    assert routes.get("price") is None


def test_the_file_is_read_when_it_changes_only(file, routes):
    write(file)
    assert routes.refresh()
    assert not routes.refresh()
    write(file, weight=2)
    assert routes.refresh()
    assert routes.get("price").weights == (2,)


def test_an_instance_stays_the_same_while_it_is_there(file, routes):
    write(file)
    routes.refresh()
    (before,) = routes.get("price").variants[0].instances
    write(file, weight=2, places=("i-0", "i-1"))
    routes.refresh()
    assert routes.get("price").variants[0].instances[1] is before


def test_counts_outlive_a_change(file, routes):
    write(file)
    routes.refresh()
    routes.get("price").variants[0].counters.invocations += 1
    write(file, weight=2)
    routes.refresh()
    assert routes.get("price").variants[0].counters.invocations == 1


@pytest.mark.parametrize("broken", [b"", b"{", b'{"routes": 3}'])
def test_a_broken_file_leaves_the_last_table_in_force(file, routes, broken):
    write(file)
    routes.refresh()
    file.write_bytes(broken)
    assert not routes.refresh()
    assert routes.get("price") is not None
    write(file, weight=5)
    assert routes.refresh()


@pytest.mark.parametrize(("weight", "of", "share"), [(0, 1, 0), (1, 4, 0.25), (1, 1, 1), (5, 2, 1)])
def test_a_shadow_s_share_is_its_weight_by_production_s(file, routes, weight, of, share):
    write(file, weight=of, shadow=VariantRoute(name="Next", weight=weight, instances=()))
    routes.refresh()
    endpoint = routes.get("price")
    assert (endpoint.shadow.route.name, endpoint.shadow_share) == ("Next", share)
    assert (endpoint.variant("Next"), endpoint.weights) == (None, (of,))


def test_a_shadow_that_becomes_the_production_variant_has_another_line(file, routes):
    shadow = VariantRoute(name="All", weight=1, instances=())
    write(file, shadow=shadow)
    routes.refresh()
    production, before = routes.get("price").variants[0], routes.get("price").shadow
    assert before.slot_queue is not production.slot_queue
    assert before.counters is production.counters
    write(file, weight=2, shadow=shadow)
    routes.refresh()
    after = routes.get("price").shadow
    assert after.slot_queue is before.slot_queue
    assert after.slot_queue.variant is after


def test_a_removed_file_leaves_the_last_table_in_force(file, routes):
    write(file)
    routes.refresh()
    file.unlink()
    assert not routes.refresh()
    assert routes.get("price") is not None


def test_what_another_gateway_sends_counts_too(file, routes, inflight, tmp_path):
    write(file)
    routes.refresh()
    (instance,) = routes.get("price").variants[0].instances
    instance.acquire_slot()
    open_inflight_table(tmp_path / "board", 1).increment(ord("1"))
    assert instance.outstanding == 2


def test_an_instance_that_leaves_is_counted_until_control_has_seen_its_requests_end(
    file, routes, inflight
):
    write(file)
    routes.refresh()
    (instance,) = routes.get("price").variants[0].instances
    instance.acquire_slot()
    write(file, places=("i-2",), leaving={"i-1": (ord("1"),)})
    routes.refresh()
    assert (instance.is_retired, inflight.outstanding(ord("1"))) == (True, 1)
    instance.release_slot()
    assert inflight.outstanding(ord("1")) == 0
    instance.acquire_slot()
    write(file, places=("i-2", "i-3"), leaving={"i-1": (ord("1"),)})
    routes.refresh()
    assert inflight.outstanding(ord("1")) == 1
    write(file, places=("i-2", "i-3"))
    routes.refresh()
    assert (instance.outstanding, inflight.outstanding(ord("1"))) == (1, 0)


def test_an_instance_that_is_gone_leaves_its_column_at_once(file, routes, inflight):
    write(file)
    routes.refresh()
    (instance,) = routes.get("price").variants[0].instances
    instance.acquire_slot()
    write(file, places=("i-2",))
    routes.refresh()
    assert (instance.outstanding, inflight.outstanding(ord("1"))) == (1, 0)
    instance.release_slot()
    assert (instance.outstanding, inflight.outstanding(ord("1"))) == (0, 0)


def test_an_instance_with_other_slots_is_the_same(file, routes):
    write(file)
    routes.refresh()
    (before,) = routes.instances()
    before.acquire_slot()
    write(file, slots=3)
    routes.refresh()
    (after,) = routes.instances()
    assert after is before
    assert (after.slots, after.outstanding) == (3, 1)


GATEWAYS = 2
gateway = st.integers(0, GATEWAYS - 1)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("take"), gateway, st.integers(0, 5)),
        st.tuples(st.just("take"), gateway, st.integers(0, 5)),
        st.tuples(st.just("give"), gateway, st.integers(0, 5)),
        st.tuples(st.just("look"), gateway, st.none()),
        st.tuples(st.just("kill"), gateway, st.none()),
        st.tuples(st.just("table"), st.none(), st.sets(st.sampled_from("ABCDEF"), max_size=4)),
        st.tuples(st.just("gone"), st.none(), st.none()),
    ),
    max_size=50,
)


@settings(deadline=None)
@given(happenings)
def test_the_board_comes_back_to_nothing_whatever_comes_and_goes(happened):
    """Instances come and go and hand on their columns; gateways see it early or late, and die."""
    with TemporaryDirectory() as folder:
        file, path = Path(folder) / "routes.json", Path(folder) / "board"
        create_inflight_table(path, GATEWAYS + 1)
        onlooker = open_inflight_table(path, GATEWAYS)
        columns: dict[str, int] = {}
        leaving: dict[str, tuple[int, ...]] = {}

        def started(row: int) -> Routes:
            inflight = open_inflight_table(path, row)
            return Routes(file, Counters(str(row)), SYSTEM, inflight, OfflineStores(file.parent))

        gateways = [started(row) for row in range(GATEWAYS)]
        working: list[list[RoutedInstance]] = [[] for _ in range(GATEWAYS)]

        def check_sum() -> None:
            counts = [onlooker.outstanding(column) for column in range(8)]
            routed = [one for held in working for one in held if one.column is not None]
            assert counts == [sum(one.column == at for one in routed) for at in range(8)]

        for what, at, more in happened:
            if what == "table":
                left = columns.keys() - more
                leaving |= {key: (columns[key],) for key in left}
                leaving = {key: kept for key, kept in leaving.items() if key not in more}
                reserved = [column for (column,) in leaving.values()]
                columns = assign_columns(sorted(more), columns, reserved)
                write_places(file, columns, leaving=leaving)
            elif what == "gone":
                leaving.clear()
                write_places(file, columns)
            elif what == "look":
                gateways[at].refresh()
            elif what == "kill":
                working[at].clear()
                clear_row(path, at)
                gateways[at] = started(at)
            elif what == "take" and (known := list(gateways[at].instances())):
                working[at].append(known[more % len(known)])
                working[at][-1].acquire_slot()
            elif what == "give" and working[at]:
                working[at].pop(more % len(working[at])).release_slot()
            check_sum()
        for one in (one for held in working for one in held):
            one.release_slot()
        working = [[]]
        check_sum()


INSTANCES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), max_size=3)
"""instances, with their slots"""
VARIANTS = st.tuples(INSTANCES, st.sampled_from([None, 1, 2]), st.booleans())
"""instances, the most requests at once, whether there is a shadow"""
TABLES = st.lists(
    st.dictionaries(st.sampled_from(["One", "Two", "Three"]), VARIANTS, max_size=3),
    min_size=2,
    max_size=5,
)


def table_of(given: dict) -> RouteTable:
    """Columns are those of a control that assigns them by name."""

    def variant(name: str, endpoint: str, slots: dict[str, int], most: int | None) -> VariantRoute:
        instances = tuple(
            InstanceRoute(
                instance_id=f"{endpoint}-{name}-{each}",
                address=f"tcp:127.0.0.1:{ord(each)}",
                slots=slots[each],
            )
            for each in sorted(slots)
        )
        on_demand = None if most is None else OnDemandRoute(max_concurrency=most, inflight_column=9)
        return VariantRoute(name=name, weight=1, instances=instances, on_demand=on_demand)

    return RouteTable(
        routes={
            name: Route(
                endpoint_name=name,
                variants=(variant("v", name, slots, most),),
                shadow=variant("s", name, slots, None) if has_shadow else None,
            )
            for name, (slots, most, has_shadow) in given.items()
        }
    )


def described(routes: Routes) -> object:
    """Everything that a table makes, without what it counts."""
    return (
        {
            name: [
                (
                    [(each.instance_id, each.slots) for each in variant.instances],
                    variant.concurrency is None,
                    variant.slot_queue.variant is variant,
                    routes._queues[name, variant.route.name, "", variant is endpoint.shadow]
                    is variant.slot_queue,
                )
                for variant in (*endpoint.variants, *filter(None, [endpoint.shadow]))
            ]
            for name, endpoint in routes._endpoints.items()
        },
        routes._instances.keys(),
        routes._queues.keys(),
        routes._concurrencies.keys(),
        len(routes._leaving),
    )


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_a_table_is_what_it_is_whatever_tables_came_before(tables):
    """Only what has changed is made anew, and the result is that of a gateway that just began."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "routes.json")
        create_inflight_table(file.with_name("board"), 2)
        inflight = open_inflight_table(file.with_name("board"), 0)

        def make() -> Routes:
            return Routes(file, Counters("1"), SYSTEM, inflight, OfflineStores(file.parent))

        followed = make()
        for given_table in tables:
            file.with_suffix(".new").write_bytes(msgspec.json.encode(table_of(given_table)))
            file.with_suffix(".new").replace(file)
            followed.refresh()
            fresh = make()
            fresh.refresh()
            assert described(followed) == described(fresh)


def test_an_endpoint_that_stays_the_same_is_the_same_object(file, routes):
    slots = ({"a": 1}, None, False)
    file.write_bytes(msgspec.json.encode(table_of({"One": slots, "Two": slots})))
    before = routes.get("One")
    file.unlink()
    file.write_bytes(msgspec.json.encode(table_of({"One": slots, "Two": ({"b": 1}, None, False)})))
    routes.refresh()
    assert routes.get("One") is before
    assert [each.instance_id for each in routes.get("Two").variants[0].instances] == ["Two-v-b"]
