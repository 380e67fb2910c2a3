"""Rows of several models predicted in one call: the same floats as the library's."""

import threading
from array import array

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagehen.containers.modelserver.adapters.xgboost import (
    forest as xgboost_forest,
)
from sagehen.containers.modelserver.adapters.xgboost import (
    trees as xgboost_trees,
)
from sagehen.containers.modelserver.adapters.xgboost.adapter import adapter
from sagehen.containers.modelserver.adapters.xgboost.forest import (
    INITIAL_NODES,
    MAX_JOINT_ROWS,
    ForestPool,
)
from support.fixtures.modelserver import FEATURES, trained
from support.fixtures.xgboost_models import (
    NAN,
    Leaf,
    Split,
    as_arrays,
    as_bytes,
    booster_of,
    library_scores,
    trained_for,
    written,
)
from support.frameworks import xgboost

OBJECTIVES = sorted(xgboost_trees._OBJECTIVES)


@pytest.mark.parametrize("form", ["ubj", "json"])
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        *((objective, {}) for objective in OBJECTIVES),
        ("reg:squarederror", {"base_score": 400_000}),
        ("reg:squarederror", {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide"}),
        ("reg:squarederror", {"max_leaves": 1, "gamma": 1e9}),
        ("reg:squarederror", {"num_parallel_tree": 3, "subsample": 0.5}),
        ("reg:squarederror", {"tree_method": "exact", "gamma": 5}),
        ("reg:squarederror", {"max_depth": 12, "min_child_weight": 0}),
        ("reg:squarederror", {"rounds": 300}),
        ("reg:logistic", {"base_score": 0.3}),
        ("binary:logitraw", {"base_score": 0.5}),
        ("count:poisson", {"base_score": 3}),
    ],
    ids=str,
)
def test_the_scores_are_those_of_the_library(rows, objective, parameters, form):
    booster, pool = booster_of(trained_for(objective, **parameters), form), ForestPool()
    forest = pool.add(booster)
    assert forest is not None
    cells = as_arrays(rows)
    together = pool.predict([(forest, row) for row in cells])
    assert as_bytes(together) == library_scores(booster, cells)
    assert [pool.predict([(forest, row)])[0] for row in cells] == together


def test_early_stopping_counts(regressor, rows):
    model = regressor.copy()
    model.set_attr(best_iteration="4")
    booster, pool = booster_of(model), ForestPool()
    scores = pool.predict([(pool.add(booster), row) for row in as_arrays(rows)])
    assert as_bytes(scores) == library_scores(booster, as_arrays(rows))
    assert scores == model.predict(xgboost.DMatrix(rows), iteration_range=(0, 5)).tolist()


def test_a_model_of_another_kind_takes_no_nodes():
    pool = ForestPool()
    assert pool.add(booster_of(trained("multi:softprob"))) is None
    assert pool._free == [(0, INITIAL_NODES)]


@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:gamma"])
def test_a_model_that_compares_unequal_is_left_to_the_library(objective, monkeypatch):
    """As with a library that adds up in another order, or has other rules for missing cells."""
    booster = booster_of(trained_for(objective))
    rule = xgboost_trees._OBJECTIVES[objective]
    off = rule._replace(margin=lambda score: rule.margin(score) * (1 + 1e-6))
    monkeypatch.setitem(xgboost_trees._OBJECTIVES, objective, off)
    pool = ForestPool()
    assert pool.add(booster) is None
    assert pool._free == [(0, INITIAL_NODES)]


def single(low, high):
    return st.floats(low, high, width=32)


LARGEST = float(np.finfo(np.float32).max)
CELLS = st.one_of(
    st.just(NAN),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, LARGEST, -LARGEST]),
    single(-5, 5),
    single(-LARGEST, LARGEST),
)
THRESHOLDS = st.one_of(st.sampled_from([0.0, -0.0, 1e-45, LARGEST]), single(-5, 5))
LEAVES = st.one_of(st.sampled_from([0.0, -0.0]), single(-8, 8), single(-(2.0**66), 2.0**66))
TREES = st.recursive(
    st.builds(Leaf, LEAVES),
    lambda inner: st.builds(
        Split, st.integers(0, FEATURES - 1), THRESHOLDS, st.booleans(), inner, inner
    ),
    max_leaves=12,
)
ROWS = st.lists(CELLS, min_size=FEATURES, max_size=FEATURES).map(lambda row: array("f", row))
WRITTEN = st.builds(
    written,
    st.lists(TREES, min_size=1, max_size=6),
    st.sampled_from(OBJECTIVES),
    st.sampled_from(["5E-1", "2.5E-1", "7E-1"]),
)
TRAINED = st.builds(
    lambda objective, seed, rounds, **parameters: booster_of(
        trained_for(objective, seed, rounds, **parameters)
    ),
    st.sampled_from(OBJECTIVES),
    st.integers(0, 20),
    st.integers(1, 12),
    max_depth=st.integers(1, 9),
    num_parallel_tree=st.integers(1, 2),
    gamma=st.sampled_from([0, 0.5, 1e9]),
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(deadline=None, max_examples=80, suppress_health_check=SLOW)
@given(
    boosters=st.lists(st.one_of(WRITTEN, TRAINED), min_size=1, max_size=4),
    requests=st.lists(st.tuples(st.integers(0, 3), ROWS), min_size=1, max_size=30),
)
def test_any_rows_of_any_models_together_score_as_each_alone(boosters, requests):
    pool = ForestPool()
    forests = [pool.add(booster) for booster in boosters]
    batch = [
        (forests[number], boosters[number], row)
        for number, row in requests
        if number < len(boosters) and forests[number] is not None
    ]
    scores = pool.predict([(forest, row) for forest, _, row in batch])
    assert as_bytes(scores) == b"".join(library_scores(one, [row]) for _, one, row in batch)


@settings(deadline=None, max_examples=40, suppress_health_check=SLOW)
@given(booster=st.one_of(WRITTEN, TRAINED))
def test_models_of_these_kinds_are_all_supported(booster):
    assert ForestPool().add(booster) is not None


def test_the_sign_of_a_zero_beside_a_model_of_more_trees():
    pool, row = ForestPool(), array("f", [0.0] * FEATURES)
    short = written([Leaf(-0.0)], "reg:squarederror", "-0E0")
    long = written([Leaf(1.0)] * 3, "reg:squarederror", "5E-1")
    scores = pool.predict([(pool.add(short), row), (pool.add(long), row)])
    assert as_bytes(scores) == library_scores(short, [row]) + library_scores(long, [row])
    assert str(scores[0]) == "-0.0"


def test_more_trees_than_are_walked_at_once(rows, monkeypatch):
    pool = ForestPool()
    boosters = [booster_of(trained(seed=seed)) for seed in range(3)]
    forests = [pool.add(booster) for booster in boosters]
    cells = as_arrays(rows)
    expected = [library_scores(booster, [row]) for row in cells for booster in boosters]
    batch = [(forest, row) for row in cells for forest in forests]
    for walked in (1, 25, 30, 10 * len(batch), 10 * len(batch) - 1):
        monkeypatch.setattr(xgboost_forest, "MAX_WALKED_TREES", walked)
        assert [as_bytes([score]) for score in pool.predict(batch)] == expected
    assert pool.predict([]) == []


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(xgboost_forest, "INITIAL_NODES", 100)
    return ForestPool()


def test_models_come_and_go_in_a_pool_that_grows_and_shrinks(rows, small_pool):
    boosters = [booster_of(trained(seed=seed)) for seed in range(4)]
    cells = as_arrays(rows)
    expected = [library_scores(booster, cells) for booster in boosters]
    held = {number: small_pool.add(booster) for number, booster in enumerate(boosters)}
    largest = len(small_pool._nodes.feature)
    chance = np.random.default_rng(3)
    for _ in range(100):
        number = int(chance.integers(len(boosters)))
        if number in held:
            small_pool.remove(held.pop(number))
        else:
            held[number] = small_pool.add(boosters[number])
        for each, forest in held.items():
            scores = small_pool.predict([(forest, row) for row in cells])
            assert as_bytes(scores) == expected[each]
    assert len(small_pool._nodes.feature) <= 2 * largest
    for forest in held.values():
        small_pool.remove(forest)
    assert small_pool._free == [(0, 100)]
    assert len(small_pool._nodes.feature) == 100


def test_predictions_while_other_threads_add_and_remove(rows, small_pool):
    first = booster_of(trained(seed=1))
    forest, cells = small_pool.add(first), as_arrays(rows)
    expected = library_scores(first, cells)
    over, failures = threading.Event(), []

    def come_and_go(booster):
        try:
            while not over.is_set():
                added = [small_pool.add(booster) for _ in range(4)]
                scores = [small_pool.predict([(each, row) for row in cells]) for each in added]
                assert all(as_bytes(each) == library_scores(booster, cells) for each in scores)
                for each in added:
                    small_pool.remove(each)
        except BaseException as failure:
            failures.append(failure)

    boosters = [booster_of(trained(seed=seed)) for seed in (2, 3)]
    threads = [threading.Thread(target=come_and_go, args=(booster,)) for booster in boosters]
    for thread in threads:
        thread.start()
    resized = set()
    for _ in range(2000):
        resized.add(len(small_pool._nodes.feature))
        scores = small_pool.predict([(forest, row) for row in cells])
        if as_bytes(scores) != expected:
            break
    over.set()
    for thread in threads:
        thread.join()
    assert as_bytes(scores) == expected
    assert failures == []
    assert len(resized) > 1


@pytest.fixture
def two_models(base_dir, environment, put_model):
    """Two models of a multi-model container."""
    made = adapter(environment("xgboost", SAGEMAKER_MULTI_MODEL="true"))
    for number in range(2):
        put_model(base_dir / str(number), trained(seed=number))
    return [made.load(base_dir / str(number)) for number in range(2)]


def test_tables_of_two_models_together(two_models, rows, as_csv):
    first, second = two_models
    assert first.joint is second.joint is not None
    one = first.decode(as_csv(rows[:1]), "text/csv")
    several = second.decode(as_csv(rows[:3]), "text/csv")
    many = first.decode(as_csv(np.vstack([rows] * 2)), "text/csv")
    none = second.decode(b"", "text/csv")
    batch = [(first, one), (second, several), (first, many), (second, none), (second, several)]
    assert first.joint.predict_jointly(batch) == [model.predict([rows])[0] for model, rows in batch]


def test_a_busy_booster_is_not_asked_by_a_second_thread(two_models, rows, as_csv):
    model, _ = two_models
    table = model.decode(as_csv(np.vstack([rows] * MAX_JOINT_ROWS)), "text/csv")
    expected = model.predict([table])
    calls = []
    (booster,) = model._boosters
    predict = booster.predict
    booster.predict = lambda *given: calls.append(threading.current_thread()) or predict(*given)
    with model._predicting:
        assert model.joint.predict_jointly([(model, table)]) == expected
        assert calls == []
    assert model.joint.predict_jointly([(model, table)]) == expected
    assert len(calls) == 1


def test_rows_of_one_model_are_the_librarys_unless_it_is_a_single_row_of_another(
    two_models, rows, as_csv, monkeypatch
):
    first, second = two_models
    one = first.decode(as_csv(rows[:1]), "text/csv")
    joint = first.joint
    together = []
    predict = joint.pool.predict
    monkeypatch.setattr(joint.pool, "predict", lambda given: together.append(1) or predict(given))
    expected = first.predict([one])
    assert joint.predict_jointly([(first, one), (first, one)]) == expected * 2
    assert together == []
    assert joint.predict_jointly([(first, one)]) == expected
    assert together == [1], "its trees may have to be fetched from memory"
    assert joint.predict_jointly([(first, one)]) == expected
    assert together == [1]
    assert joint.predict_jointly([(second, one)]) == second.predict([one])
    assert joint.predict_jointly([(first, one)]) == expected
    assert together == [1, 1, 1]


def test_a_closed_model_does_not_predict_alone(two_models, rows, as_csv):
    model, _ = two_models
    table = model.decode(as_csv(rows), "text/csv")
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.joint.predict_jointly([(model, table)])


def test_a_closed_model_frees_its_nodes_and_its_rows_are_not_given_others_scores(
    two_models, rows, as_csv
):
    first, second = two_models
    pool = first.joint.pool
    table = first.decode(as_csv(rows[:1]), "text/csv")
    first.close()
    with pytest.raises(RuntimeError, match="closed"):
        first.joint.predict_jointly([(first, table), (second, table)])
    second.close()
    assert pool._free == [(0, INITIAL_NODES)]


def test_a_container_of_one_model_does_without(base_dir, environment, put_model, regressor):
    put_model(base_dir / "model", regressor)
    model = adapter(environment("xgboost")).load(base_dir / "model")
    assert model.joint is None
