from hypothesis import given
from hypothesis import strategies as st

from sagehen.frame.routes import INFLIGHT_COLUMNS
from sagehen.services.sagemaker.hosting.reconciler.routes import assign_columns

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
