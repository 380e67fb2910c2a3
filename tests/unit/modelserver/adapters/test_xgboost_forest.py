"""Trees predicted beside each other: the library's own floats, or left to the library."""

import threading
from array import array

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.modelserver.conftest import FEATURES, trained

from sagehen.modelserver.adapters import xgboost_forest
from sagehen.modelserver.adapters.xgboost import MOST_JOINT_ROWS, adapter
from sagehen.modelserver.adapters.xgboost_forest import FIRST_NODES, ForestPool
from sagehen.modelserver.adapters.xgboost_library import Booster, find_library

LIBRARY = find_library()


def booster_of(model, form="ubj"):
    booster = Booster(LIBRARY)
    booster.load(bytes(model.save_raw(form)))
    return booster


def as_arrays(rows):
    return [array("f", row.tolist()) for row in rows]


def expected(booster, rows):
    return booster.predict(array("f", rows.astype(np.float32).ravel().tolist()), len(rows)).values


@pytest.mark.parametrize("form", ["ubj", "json"])
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        ("reg:squarederror", {}),
        ("reg:squarederror", {"base_score": 400_000}),
        ("reg:squarederror", {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide"}),
        ("reg:squarederror", {"num_parallel_tree": 3, "subsample": 0.5}),
        ("reg:squarederror", {"tree_method": "exact", "gamma": 5}),
        ("reg:squarederror", {"max_depth": 12, "min_child_weight": 0}),
        ("reg:pseudohubererror", {}),
        ("reg:absoluteerror", {}),
        ("reg:logistic", {"base_score": 0.3}),
        ("binary:logistic", {}),
    ],
    ids=str,
)
def test_the_floats_are_the_library_s(rows, objective, parameters, form):
    model = trained(objective if objective != "reg:logistic" else "binary:logistic", **parameters)
    if objective == "reg:logistic":
        model.set_param({"objective": objective})
    booster, pool = booster_of(model, form), ForestPool()
    forest = pool.add(booster)
    assert forest is not None
    told = pool.predict([(forest, row) for row in as_arrays(rows)])
    assert told == expected(booster, rows)
    assert [pool.predict([(forest, row)])[0] for row in as_arrays(rows)] == told


def test_early_stopping_counts(regressor, rows):
    model = regressor.copy()
    model.set_attr(best_iteration="4")
    booster, pool = booster_of(model), ForestPool()
    told = pool.predict([(pool.add(booster), row) for row in as_arrays(rows)])
    assert told == expected(booster, rows)
    assert told == model.predict(xgboost.DMatrix(rows), iteration_range=(0, 5)).tolist()


def categorical():
    cells = np.random.default_rng(1).integers(0, 5, (200, FEATURES)).astype(np.float32)
    kinds = ["c", *["q"] * (FEATURES - 1)]
    data = xgboost.DMatrix(
        cells, cells[:, 0] == 2, feature_types=kinds, enable_categorical=True, nthread=1
    )
    return xgboost.train({"max_cat_to_onehot": 1, "nthread": 1}, data, 5)


def vector_leaves():
    cells = np.random.default_rng(1).normal(size=(200, FEATURES))
    data = xgboost.DMatrix(cells, cells[:, :2], nthread=1)
    chosen = {"multi_strategy": "multi_output_tree", "tree_method": "hist", "nthread": 1}
    return xgboost.train(chosen, data, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: trained("multi:softprob"),
        lambda: trained("multi:softmax"),
        lambda: trained("binary:hinge"),
        lambda: trained("binary:logitraw"),
        lambda: trained(booster="dart", rate_drop=0.5),
        lambda: trained(booster="gblinear"),
        categorical,
        vector_leaves,
    ],
    ids=["softprob", "softmax", "hinge", "logitraw", "dart", "linear", "categorical", "vectors"],
)
def test_what_is_of_another_kind_is_left_to_the_library(make):
    try:
        model = make()
    except xgboost.core.XGBoostError:
        pytest.skip("This XGBoost has no such models.")
    pool = ForestPool()
    assert pool.add(booster_of(model)) is None
    assert pool._free == [(0, FIRST_NODES)]


def test_what_is_large_is_left_to_the_library(regressor, monkeypatch):
    monkeypatch.setattr(xgboost_forest, "MOST_NODES", 10)
    assert ForestPool().add(booster_of(regressor)) is None


def test_what_comes_out_otherwise_is_left_to_the_library(regressor, monkeypatch):
    """As by a library that adds up in another order, or has other rules for what is missing."""
    wrong = (lambda base: base + 0.001, None)
    monkeypatch.setitem(xgboost_forest._OBJECTIVES, "reg:squarederror", wrong)
    pool = ForestPool()
    assert pool.add(booster_of(regressor)) is None
    assert pool._free == [(0, FIRST_NODES)]


MODELS = [
    trained(objective, seed, max_depth=depth)
    for seed, (objective, depth) in enumerate(
        [
            ("reg:squarederror", 1),
            ("reg:squarederror", 6),
            ("binary:logistic", 3),
            ("reg:squarederror", 3),
            ("binary:logistic", 5),
        ]
    )
]
CELLS = st.one_of(
    st.just(float("nan")),
    st.floats(-5, 5, width=32),
    st.floats(-(2.0**100), 2.0**100, width=32),
)


@settings(deadline=None, max_examples=60)
@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(range(len(MODELS))),
            st.lists(CELLS, min_size=FEATURES, max_size=FEATURES),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_rows_of_any_models_together_are_as_each_alone(asked):
    pool = ForestPool()
    boosters = [booster_of(model) for model in MODELS]
    forests = [pool.add(booster) for booster in boosters]
    told = pool.predict([(forests[number], array("f", cells)) for number, cells in asked])
    assert told == [
        boosters[number].predict(array("f", cells), 1).values[0] for number, cells in asked
    ]


def test_models_come_and_go_in_a_pool_that_grows(rows, monkeypatch):
    monkeypatch.setattr(xgboost_forest, "FIRST_NODES", 100)
    pool = ForestPool()
    boosters = [booster_of(trained(seed=seed)) for seed in range(4)]
    held = {number: pool.add(booster) for number, booster in enumerate(boosters)}
    chance = np.random.default_rng(3)
    for _ in range(100):
        number = int(chance.integers(len(boosters)))
        if number in held:
            pool.remove(held.pop(number))
        else:
            held[number] = pool.add(boosters[number])
        for each, forest in held.items():
            told = pool.predict([(forest, row) for row in as_arrays(rows)])
            assert told == expected(boosters[each], rows)
    for forest in held.values():
        pool.remove(forest)
    # Everything is one piece again, and no larger than what was needed at once.
    most = sum(forest.nodes for forest in map(pool.add, boosters))
    assert len(pool._nodes.feature) <= 4 * most


@pytest.fixture
def two_models(base_dir, environment, put_model):
    """Two models of a multi-model container."""
    made = adapter(environment("xgboost", SAGEMAKER_MULTI_MODEL="true"))
    for number in range(2):
        put_model(base_dir / str(number), trained(seed=number))
    return [made.load(base_dir / str(number)) for number in range(2)]


def alone(model, tables):
    return model.predict(tables)


def test_tables_of_two_models_together(two_models, rows, as_csv):
    first, second = two_models
    assert first.joint is second.joint is not None
    few = [model.decode(as_csv(rows[at : at + 1]), "text/csv") for at, model in ((0, first),)]
    several = second.decode(as_csv(rows[:3]), "text/csv")
    many = first.decode(as_csv(np.vstack([rows] * 2)), "text/csv")
    none = second.decode(b"", "text/csv")
    batch = [(first, few[0]), (second, several), (first, many), (second, none)]
    told = first.joint.predict_jointly(batch)
    assert told == [alone(model, [table])[0] for model, table in batch]


def test_a_busy_booster_is_not_asked_by_a_second_thread(two_models, rows, as_csv):
    model, _ = two_models
    table = model.decode(as_csv(np.vstack([rows] * MOST_JOINT_ROWS)), "text/csv")
    told = alone(model, [table])
    calls = []
    (booster,) = model._boosters
    predict = booster.predict
    booster.predict = lambda *given: calls.append(threading.current_thread()) or predict(*given)
    with model._asked:
        assert model.joint.predict_jointly([(model, table)]) == told
        assert calls == []
    assert model.joint.predict_jointly([(model, table)]) == told
    assert len(calls) == 1


def test_a_closed_model_leaves_its_room(two_models):
    pool = two_models[0].joint.pool
    for model in two_models:
        model.close()
    assert pool._free == [(0, FIRST_NODES)]


def test_a_container_of_one_model_does_without(base_dir, environment, put_model, regressor):
    put_model(base_dir / "model", regressor)
    model = adapter(environment("xgboost")).load(base_dir / "model")
    assert model.joint is None
    assert model.forest is None
