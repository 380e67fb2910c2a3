import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sagehen.domain.routes import RoutingStrategy
from sagehen.gateway.choose import (
    choose_by_affinity,
    choose_free,
    choose_instance,
    choose_variant,
    rank_by_affinity,
)

LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS


@dataclass
class Busy:
    outstanding: int
    slots: int = 100

    @property
    def is_free(self) -> bool:
        return self.outstanding < self.slots


def test_variants_share_by_weight():
    rng = random.Random(1)
    chosen = Counter(choose_variant([3, 0, 1], rng.random) for _ in range(4000))
    assert chosen[1] == 0
    assert 2850 < chosen[0] < 3150


@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=5),
    st.floats(0, 1, exclude_max=True),
)
def test_a_variant_without_weight_is_chosen_only_if_none_has_any(weights, chance):
    place = choose_variant(weights, lambda: chance)
    assert weights[place] > 0 or not any(weights)


def test_random_reaches_every_instance():
    rng = random.Random(2)
    instances = [Busy(9), Busy(0), Busy(5)]
    chosen = {id(choose_instance(instances, RoutingStrategy.RANDOM, rng.random)) for _ in range(99)}
    assert len(chosen) == 3


def test_least_outstanding_takes_the_least_busy():
    instances = [Busy(2), Busy(1), Busy(3)]
    assert choose_instance(instances, LEAST, random.Random(3).random) is instances[1]


def test_least_outstanding_breaks_ties_at_random():
    rng = random.Random(4)
    instances = [Busy(1), Busy(4), Busy(1)]
    chosen = Counter(id(choose_instance(instances, LEAST, rng.random)) for _ in range(1000))
    assert set(chosen) == {id(instances[0]), id(instances[2])}
    assert min(chosen.values()) > 400


def test_affinity_does_not_depend_on_the_order_of_the_table():
    ids = [f"i-{number}" for number in range(6)]
    other = list(reversed(ids))
    ranked = [ids[place] for place in rank_by_affinity(ids, "Houston_TX.tar.gz")]
    assert ranked == [other[place] for place in rank_by_affinity(other, "Houston_TX.tar.gz")]


def test_a_new_instance_moves_only_the_models_that_it_gets():
    ids = [f"i-{number}" for number in range(4)]
    models = [f"m{number}" for number in range(400)]
    before = {model: ids[rank_by_affinity(ids, model)[0]] for model in models}
    more = [*ids, "i-new"]
    after = {model: more[rank_by_affinity(more, model)[0]] for model in models}
    moved = [model for model in models if before[model] != after[model]]
    assert {after[model] for model in moved} == {"i-new"}
    assert 40 < len(moved) < 130


def test_a_model_stays_until_its_instance_is_busy():
    ranked = [Busy(7), Busy(2), Busy(0)]
    assert choose_by_affinity(ranked, busy_from=8) is ranked[0]
    assert choose_by_affinity(ranked, busy_from=7) is ranked[1]
    assert choose_by_affinity([Busy(9), Busy(8)], busy_from=8).outstanding == 8


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=6),
    st.sampled_from(list(RoutingStrategy)),
    st.randoms(use_true_random=False),
)
def test_only_what_is_free_is_chosen_and_something_is_where_anything_is(counts, strategy, rng):
    instances = [Busy(outstanding, slots) for outstanding, slots in counts]
    free = [one for one in instances if one.is_free]
    for chosen in (
        choose_free(instances, strategy, rng.random),
        choose_by_affinity(instances, busy_from=2),
    ):
        assert (chosen in free) if free else chosen is None


def test_random_is_fair_among_the_free_ones():
    rng = random.Random(4)
    instances = [Busy(1, 1), Busy(0, 1), Busy(0, 1)]
    chosen = Counter(
        id(choose_free(instances, RoutingStrategy.RANDOM, rng.random)) for _ in range(4000)
    )
    assert len(chosen) == 2
    assert 1850 < chosen[id(instances[1])] < 2150
