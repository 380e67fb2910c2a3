"""Children come before their parents, and cycles not at all."""

from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.monitoring.alarms.composite.order import evaluation_order

NAMES = "abcdefgh"


def test_children_come_first():
    assert evaluation_order({"c": ["b", "x"], "b": ["a"], "a": ["y"]}) == ["a", "b", "c"]


def test_a_cycle_is_left_out_but_not_what_is_above_or_below_it():
    children = {"top": ["p", "x"], "p": ["q"], "q": ["p", "low"], "low": ["x"], "self": ["self"]}
    assert evaluation_order(children) == ["low", "top"]


def test_deep_nesting_needs_no_stack():
    chain = {str(number): [str(number - 1)] for number in range(20_000, 0, -1)}
    assert evaluation_order(chain) == [str(number) for number in range(1, 20_001)]


@given(st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)), max_size=8))
def test_any_graph(children):
    def below(name):
        found, new = set(), set(children[name])
        while new:
            found |= new
            new = {child for one in new for child in children.get(one, ())} - found
        return found

    order = evaluation_order(children)
    assert sorted(order) == sorted(name for name in children if name not in below(name))
    for place, name in enumerate(order):
        assert not below(name) & set(order[place:])
