from hypothesis import given
from hypothesis import strategies as st

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import INFLIGHT_COLUMNS
from sagehen.services.sagemaker.hosting.reconciler.columns import (
    assign_columns,
    columns_of,
    instance_columns,
    leaving_columns,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import build_routes
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.fleet import NAME, deployment, endpoint, instance

ids = st.sets(st.integers(0, 20).map(str))


@given(st.lists(ids, max_size=8))
def test_a_routed_instance_keeps_a_column_that_no_other_has(tables):
    columns: dict[str, int] = {}
    for wanted in tables:
        before, columns = columns, assign_columns(sorted(wanted), columns)
        assert columns.keys() == wanted
        assert len(set(columns.values())) == len(columns)
        assert all(columns[one] == before[one] for one in wanted & before.keys())


def test_freed_columns_are_used_again():
    assert assign_columns(["b", "c"], {"a": 0, "b": 1}) == {"b": 1, "c": 0}


def test_beyond_the_last_column_an_instance_has_none():
    many = [str(number) for number in range(INFLIGHT_COLUMNS + 1)]
    assert len(assign_columns(many, {})) == INFLIGHT_COLUMNS


def test_an_instance_that_leaves_keeps_its_column_until_it_is_gone():
    serving = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 2))
    i1, i2, i3 = (instance(name, "d1", InstanceState.IN_SERVICE) for name in ("i1", "i2", "i3"))
    before = build_routes([serving], {NAME: (i1, i2)}, None, {})
    leaves = instance("i1", "d1", InstanceState.IN_SERVICE, stop_at=9.0)

    leaving = leaving_columns((leaves, i2, i3), before, {})
    after = build_routes([serving], {NAME: (leaves, i2, i3)}, None, before, reserved=leaving["i1"])

    assert instance_columns(before) == {"i1": (0,), "i2": (1,)}
    assert leaving == {"i1": (0,)}
    assert columns_of(after) == {"i2": 1, "i3": 2}
    assert leaving_columns((leaves, i2, i3), after, leaving) == leaving
    assert leaving_columns((i2, i3), after, leaving) == {}
