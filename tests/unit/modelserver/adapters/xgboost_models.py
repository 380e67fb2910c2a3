"""Boosters for tests: trained with any settings, or made of trees that were written by hand."""

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import xgboost
from tests.unit.modelserver.conftest import FEATURES, trained

from sagehen.modelserver.adapters.xgboost_library import Booster, find_library

LIBRARY = find_library()
NAN = float("nan")
POSITIVE = ("count:", "reg:gamma", "reg:tweedie", "reg:squaredlogerror")


def booster_of(model: Any, form: str = "ubj") -> Booster:
    booster = Booster(LIBRARY)
    booster.load(bytes(model.save_raw(form)))
    return booster


def trained_for(objective: str, seed: int = 0, rounds: int = 10, **parameters: Any) -> Any:
    """Any objective, also those that need positive labels or groups."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(200, FEATURES)).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    labels = np.nansum(rows, axis=1)
    if objective.startswith(("binary:", "rank:")) or objective == "reg:logistic":
        labels = (labels > 0).astype(np.float32)
    if objective.startswith(POSITIVE):
        labels = np.exp(labels / 4)
    data = xgboost.DMatrix(rows, labels, nthread=1)
    if objective.startswith("rank:"):
        data.set_group([50] * 4)
    settings = {"objective": objective, "max_depth": 3, "nthread": 1, "verbosity": 0, **parameters}
    return xgboost.train(settings, data, rounds)


@dataclass(frozen=True)
class Leaf:
    value: float


@dataclass(frozen=True)
class Split:
    feature: int
    threshold: float
    default_left: bool
    left: "Leaf | Split"
    right: "Leaf | Split"


def written(trees: Sequence[Leaf | Split], objective: str, base_score: str) -> Booster:
    """A booster of these trees, as the library reads them from JSON."""
    content = json.loads(_template(objective))
    learner = content["learner"]
    learner["learner_model_param"]["base_score"] = base_score
    model = learner["gradient_booster"]["model"]
    model["trees"] = [_json_tree(number, tree) for number, tree in enumerate(trees)]
    model["tree_info"] = [0] * len(trees)
    model["gbtree_model_param"]["num_trees"] = str(len(trees))
    model["iteration_indptr"] = list(range(len(trees) + 1))
    booster = Booster(LIBRARY)
    booster.load(json.dumps(content).encode())
    return booster


@cache
def _template(objective: str) -> bytes:
    return bytes(trained_for(objective, rounds=1).save_raw("json"))


def _json_tree(number: int, tree: Leaf | Split) -> dict[str, Any]:
    nodes, parents = [tree], [2**31 - 1]
    left: list[int] = []
    for at, node in enumerate(nodes):  # grows while it is read
        if isinstance(node, Leaf):
            left.append(-1)
            continue
        left.append(len(nodes))
        nodes += [node.left, node.right]
        parents += [at, at]
    count = len(nodes)
    splits = [node if isinstance(node, Split) else None for node in nodes]
    return {
        "base_weights": [0.0] * count,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [int(split.default_left) if split else 0 for split in splits],
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * count,
        "parents": parents,
        "right_children": [child + 1 if child >= 0 else -1 for child in left],
        "split_conditions": [
            float(node.threshold if isinstance(node, Split) else node.value) for node in nodes
        ],
        "split_indices": [split.feature if split else 0 for split in splits],
        "split_type": [0] * count,
        "sum_hessian": [1.0] * count,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(FEATURES),
            "num_nodes": str(count),
            "size_leaf_vector": "1",
        },
    }


def as_arrays(rows: np.ndarray) -> "list[array[float]]":
    return [array("f", row.tolist()) for row in rows]


def library_scores(booster: Booster, rows: "Sequence[array[float]]") -> bytes:
    """The library's floats, as bytes: -0.0 is not 0.0, and NaN is NaN."""
    return as_bytes(booster.predict(array("f", b"".join(rows)), len(rows)).values)


def as_bytes(scores: Sequence[float]) -> bytes:
    return array("f", scores).tobytes()


__all__ = [
    "LIBRARY",
    "NAN",
    "Leaf",
    "Split",
    "as_arrays",
    "as_bytes",
    "booster_of",
    "library_scores",
    "trained",
    "trained_for",
    "written",
]
