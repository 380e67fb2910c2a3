import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.routes import RoutingStrategy
from sagehen.frame.routing import (
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


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(any),
    st.integers(0, 2**32),
)
def test_the_shares_come_to_the_weights(weights, seed):
    rng = random.Random(seed)
    calls = 3000
    chosen = Counter(choose_variant(weights, rng.random) for _ in range(calls))
    expected = [calls * weight / sum(weights) for weight in weights]
    assert all(chosen[place] == 0 for place, weight in enumerate(weights) if weight == 0)
    chi_square = sum(
        (chosen[at] - share) ** 2 / share for at, share in enumerate(expected) if share
    )
    # With five degrees of freedom, more comes by chance once in ten million times.
    assert chi_square < 41


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
    first = [True, False, False]
    assert choose_by_affinity(ranked, first, busy_from=8) is ranked[0]
    assert choose_by_affinity(ranked, first, busy_from=7) is ranked[1]
    assert choose_by_affinity([Busy(9), Busy(8)], [True, True], busy_from=8).outstanding == 8


def test_a_model_is_asked_for_where_it_is():
    """Not where it would go now: an instance that came meanwhile starts empty."""
    ranked = [Busy(0), Busy(3), Busy(1, slots=1)]
    assert choose_by_affinity(ranked, [False, True, False], busy_from=8) is ranked[1]
    assert choose_by_affinity(ranked, [False, False, True], busy_from=8) is ranked[0], "it is full"
    assert choose_by_affinity(ranked, [False, False, False], busy_from=8) is ranked[0]


def test_when_all_are_busy_nobody_else_gets_a_copy():
    ranked = [Busy(8), Busy(9), Busy(8)]
    assert choose_by_affinity(ranked, [False, True, False], busy_from=8) is ranked[1]
    assert choose_by_affinity(ranked, [False, False, False], busy_from=9) is ranked[0]


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
        choose_by_affinity(instances, [rng.random() < 0.5 for _ in instances], busy_from=2),
    ):
        assert (chosen in free) if free else chosen is None


STARVED_AFTER = 400
"""Decisions without being chosen, of one among six at most: by chance once in 10^31 times."""


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(0.02, 1)), min_size=2, max_size=6),
    st.sampled_from(list(RoutingStrategy)),
    st.integers(0, 2**32),
)
def test_nobody_who_could_work_is_forgotten(instances, strategy, seed):
    """Instances with these slots, which end each request with that chance at every turn."""
    rng = random.Random(seed)
    busy = [Busy(0, slots) for slots, _ in instances]
    passed_over = [0] * len(busy)
    for _ in range(2000):
        chosen = choose_free(busy, strategy, rng.random)
        for at, one in enumerate(busy):
            could = one.is_free if strategy is RoutingStrategy.RANDOM else one.outstanding == 0
            passed_over[at] = passed_over[at] + 1 if could and one is not chosen else 0
        assert max(passed_over) < STARVED_AFTER
        if chosen is not None:
            chosen.outstanding += 1
        for one, (_, chance) in zip(busy, instances, strict=True):
            one.outstanding -= sum(rng.random() < chance for _ in range(one.outstanding))


@given(st.integers(2, 8), st.integers(1, 4))
def test_a_model_that_all_ask_for_comes_to_every_instance(count, slots):
    """By affinity: the first alone until it is busy, all of them when there is work for all."""
    ranked = [Busy(0, slots) for _ in range(count)]
    holds = [False] * count
    for turn in range(count * slots):
        chosen = choose_by_affinity(ranked, holds, busy_from=32)
        assert chosen is not None
        chosen.outstanding += 1
        holds = [held or one is chosen for held, one in zip(holds, ranked, strict=True)]
        assert sum(holds) == turn // slots + 1
    assert [one.outstanding for one in ranked] == [slots] * count
    assert choose_by_affinity(ranked, holds, busy_from=32) is None


def test_models_are_spread_over_the_instances():
    ids = [f"i-{number}" for number in range(8)]
    first = Counter(rank_by_affinity(ids, f"model-{number}")[0] for number in range(800))
    assert len(first) == 8
    assert 50 < min(first.values()) <= max(first.values()) < 150


def test_random_is_fair_among_the_free_ones():
    rng = random.Random(4)
    instances = [Busy(1, 1), Busy(0, 1), Busy(0, 1)]
    chosen = Counter(
        id(choose_free(instances, RoutingStrategy.RANDOM, rng.random)) for _ in range(4000)
    )
    assert len(chosen) == 2
    assert 1850 < chosen[id(instances[1])] < 2150
