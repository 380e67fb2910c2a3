"""Which models' trees are read into arrays, and which are left to the library."""

import json

import numpy as np
import pytest

from sagehen.containers.modelserver.adapters.xgboost import trees as xgboost_trees
from sagehen.containers.modelserver.adapters.xgboost.library import Booster
from sagehen.containers.modelserver.adapters.xgboost.trees import (
    UnsupportedModelError,
    read_trees,
)
from support.fixtures.modelserver import FEATURES, trained
from support.fixtures.xgboost_models import (
    LIBRARY,
    Leaf,
    Split,
    booster_of,
    trained_for,
    written,
)
from support.frameworks import xgboost


def test_nodes_roots_depth_and_base():
    trees = [Leaf(0.25), Split(2, 1.5, True, Leaf(1.0), Split(0, -3.0, False, Leaf(2), Leaf(3)))]
    read = read_trees(written(trees, "reg:squarederror", "5E-1"))
    assert read.roots.tolist() == [0, 1]
    assert (read.depth, read.base, read.transform) == (2, 0.5, None)
    assert read.nodes.feature.tolist() == [0, 2, 0, 0, 0, 0]
    assert read.nodes.threshold.tolist() == [np.inf, 1.5, np.inf, -3.0, np.inf, np.inf]
    assert read.nodes.left.tolist() == [0, 2, 2, 4, 4, 5]
    assert read.nodes.value.tolist() == [0.25, 0, 1.0, 0, 2.0, 3.0]
    assert read.nodes.missing_right.tolist() == [False, False, False, True, False, False]


@pytest.mark.parametrize("base_score", ["5E-1", "[5E-1]"], ids=["a number", "a list of one"])
def test_both_forms_of_the_base_score(base_score, monkeypatch):
    booster = booster_of(trained())
    content = json.loads(booster.save())
    content["learner"]["learner_model_param"]["base_score"] = base_score
    monkeypatch.setattr(booster, "save", json.dumps(content).encode)
    assert read_trees(booster).base == 0.5


def test_rounds_after_the_best_are_not_read():
    model = trained_for("reg:squarederror", num_parallel_tree=2)
    model.set_attr(best_iteration="2")
    assert len(read_trees(booster_of(model)).roots) == 6


def categorical():
    cells = np.random.default_rng(1).integers(0, 5, (200, FEATURES)).astype(np.float32)
    kinds = ["c", *["q"] * (FEATURES - 1)]
    data = xgboost.DMatrix(
        cells, cells[:, 0] == 2, feature_types=kinds, enable_categorical=True, nthread=1
    )
    return xgboost.train({"max_cat_to_onehot": 1, "nthread": 1}, data, 5)


def of_two_targets(strategy):
    cells = np.random.default_rng(1).normal(size=(200, FEATURES))
    data = xgboost.DMatrix(cells, cells[:, :2], nthread=1)
    return xgboost.train({"multi_strategy": strategy, "tree_method": "hist", "nthread": 1}, data, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: trained("multi:softprob"),
        lambda: trained("multi:softmax"),
        lambda: trained_for("reg:quantileerror", quantile_alpha=0.5),
        lambda: trained(booster="dart", rate_drop=0.5),
        lambda: trained(booster="gblinear"),
        categorical,
        lambda: of_two_targets("multi_output_tree"),
        lambda: of_two_targets("one_output_per_tree"),
        lambda: trained_for("reg:squarederror", rounds=0),
    ],
    ids=[
        *("softprob", "softmax", "quantile", "dart", "linear", "categorical"),
        *("vector leaves", "two targets", "no trees"),
    ],
)
def test_other_kinds_of_models_are_not_supported(make):
    with pytest.raises(UnsupportedModelError):
        read_trees(booster_of(make()))


@pytest.mark.parametrize("limit", ["MAX_NODES", "MAX_MODEL_BYTES", "MAX_FEATURES"])
def test_large_models_are_not_read(limit, regressor, monkeypatch):
    booster = booster_of(regressor)
    assert read_trees(booster)
    monkeypatch.setattr(xgboost_trees, limit, 3)
    with pytest.raises(UnsupportedModelError):
        read_trees(booster)


def test_a_large_model_is_not_saved_as_json(regressor, monkeypatch):
    booster = booster_of(regressor)
    monkeypatch.setattr(booster, "save", lambda: pytest.fail("saved"))
    monkeypatch.setattr(xgboost_trees, "MAX_MODEL_BYTES", booster.content_bytes - 1)
    with pytest.raises(UnsupportedModelError):
        read_trees(booster)


def test_a_sum_that_may_overflow_is_left_to_the_library():
    trees = [Leaf(3e38), Leaf(3e38)]
    with pytest.raises(UnsupportedModelError):
        read_trees(written(trees, "reg:squarederror", "5E-1"))


@pytest.mark.parametrize(
    ("left", "right"),
    [([1, 0, -1], [2, 1, -1]), ([1, -1, -1], [3, -1, -1]), ([2, -1, -1], [3, -1, -1])],
    ids=["a cycle", "children apart", "a child outside"],
)
def test_malformed_trees_are_not_read(left, right, monkeypatch):
    booster = Booster(LIBRARY)
    booster.load(bytes(trained(max_depth=1).save_raw("json")))
    content = json.loads(booster.save())
    tree = content["learner"]["gradient_booster"]["model"]["trees"][0]
    tree.update(left_children=left, right_children=right)
    monkeypatch.setattr(booster, "save", json.dumps(content).encode)
    with pytest.raises(UnsupportedModelError):
        read_trees(booster)


def test_a_split_by_a_feature_beyond_the_row_is_not_read(monkeypatch):
    booster = booster_of(trained(max_depth=1))
    monkeypatch.setattr(booster, "features", 1)
    with pytest.raises(UnsupportedModelError):
        read_trees(booster)
