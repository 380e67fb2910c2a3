"""Reads an XGBoost model's trees into arrays, from its JSON.

Raises UnsupportedModelError unless ForestPool can predict exactly: gradient-boosted trees, one
output, numeric splits.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from sagehen.containers.modelserver.adapters.xgboost.library import Booster, BoosterError

__all__ = ["Floats", "Indices", "Nodes", "Trees", "UnsupportedModelError", "read_trees"]

MAX_MODEL_BYTES = 4 * 1024 * 1024
"""Larger models are not saved as JSON, which takes several times their memory."""
MAX_NODES = 20_000
"""With more nodes, the library is as quick: trees take nearly all its time."""
MAX_FEATURES = 4096
"""Copying wider rows takes longer than predicting them."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Indices = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class UnsupportedModelError(Exception):
    """Only the library can predict with this model."""


class Nodes(NamedTuple):
    """The nodes of some trees, one array per property."""

    feature: Indices
    """Index of the deciding cell; 0 in a leaf."""
    threshold: Floats
    """Cells below go left. Infinity in a leaf: cells are finite."""
    left: Indices
    """Index of the left child, with the right child next; a leaf's own index."""
    value: Floats
    missing_right: Flags

    @staticmethod
    def empty(count: int) -> "Nodes":
        """Leaves arrays uninitialised: unwritten pages take no memory."""
        return Nodes(
            np.empty(count, np.int32),
            np.empty(count, np.float32),
            np.empty(count, np.int32),
            np.empty(count, np.float32),
            np.empty(count, np.bool_),
        )


class Trees(NamedTuple):
    """Scores are `transform(base + the sum of one leaf per tree)`."""

    nodes: Nodes
    roots: Indices
    """In the order in which the library adds leaves."""
    depth: int
    base: float
    transform: Callable[[Floats], Floats] | None


class _TreeParam(msgspec.Struct):
    size_leaf_vector: str = "1"


class _Tree(msgspec.Struct):
    left_children: list[int]
    right_children: list[int]
    split_indices: list[int]
    split_conditions: list[float]
    """Thresholds, or values of leaves."""
    default_left: list[int]
    split_type: list[int] = []
    tree_param: _TreeParam = msgspec.field(default_factory=_TreeParam)


class _TreesParam(msgspec.Struct):
    num_parallel_tree: str = "1"


class _Model(msgspec.Struct):
    trees: list[_Tree]
    tree_info: list[int]
    gbtree_model_param: _TreesParam


class _Booster(msgspec.Struct):
    name: str
    model: _Model | None = None


class _Objective(msgspec.Struct):
    name: str


class _LearnerParam(msgspec.Struct):
    base_score: str
    """A number, or a list as text: XGBoost 3.1 and later write "[5E-1]"."""


class _Learner(msgspec.Struct):
    gradient_booster: _Booster
    objective: _Objective
    learner_model_param: _LearnerParam


class _Saved(msgspec.Struct):
    learner: _Learner


_DECODER = msgspec.json.Decoder(_Saved)


def read_trees(booster: Booster) -> Trees:
    """Raises UnsupportedModelError."""
    if booster.content_bytes > MAX_MODEL_BYTES or booster.features > MAX_FEATURES:
        raise UnsupportedModelError
    try:
        learner = _DECODER.decode(_saved(booster)).learner
        base_score = float(learner.learner_model_param.base_score.strip("[]"))
    except (BoosterError, msgspec.MsgspecError, ValueError) as error:
        raise UnsupportedModelError from error
    objective = _OBJECTIVES.get(learner.objective.name)
    model = learner.gradient_booster.model
    if objective is None or model is None or learner.gradient_booster.name != "gbtree":
        raise UnsupportedModelError
    nodes, roots = _nodes_and_roots(_trees_in_use(model, booster.rounds))
    if nodes.feature.max() >= booster.features:
        raise UnsupportedModelError
    base = objective.margin(base_score)
    largest = np.maximum.reduceat(np.abs(nodes.value), roots).sum(dtype=np.float64) + abs(base)
    if not largest < np.finfo(np.float32).max:
        raise UnsupportedModelError  # a sum may overflow
    return Trees(nodes, roots, _depth(nodes, roots), base, objective.transform)


def _saved(booster: Booster) -> bytes:
    """Uses a thread, because the library keeps a copy until the calling thread ends or the booster
    is freed.
    """
    content: list[bytes] = []
    failures: list[BoosterError] = []

    def save() -> None:
        try:
            content.append(booster.save())
        except BoosterError as error:
            failures.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    saving.join()
    if failures:
        raise failures[0]
    return content[0]


def _trees_in_use(model: _Model, rounds: int) -> list[_Tree]:
    trees = model.trees
    if rounds:
        trees = trees[: rounds * int(model.gbtree_model_param.num_parallel_tree)]
    if (
        not trees
        or not all(tree.left_children for tree in trees)
        or any(model.tree_info)  # an output per class or target
        or sum(len(tree.left_children) for tree in trees) > MAX_NODES
        or any(any(tree.split_type) for tree in trees)  # categories
        or any(int(tree.tree_param.size_leaf_vector) > 1 for tree in trees)
    ):
        raise UnsupportedModelError
    return trees


def _nodes_and_roots(trees: Sequence[_Tree]) -> tuple[Nodes, Indices]:
    sizes = [len(tree.left_children) for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
    left, right = _column(trees, "left_children"), _column(trees, "right_children")
    leaf = left < 0
    if not (leaf | ((right == left + 1) & (right < np.repeat(sizes, sizes)))).all():
        raise UnsupportedModelError
    conditions = np.array(
        [condition for tree in trees for condition in tree.split_conditions], np.float32
    )
    nodes = Nodes(
        np.where(leaf, 0, _column(trees, "split_indices")).astype(np.int32),
        np.where(leaf, np.float32(np.inf), conditions).astype(np.float32),
        np.where(leaf, np.arange(len(left)), left + np.repeat(roots, sizes)).astype(np.int32),
        np.where(leaf, conditions, 0).astype(np.float32),
        ~leaf & (_column(trees, "default_left") == 0),
    )
    return nodes, roots


def _column(trees: Sequence[_Tree], name: str) -> Indices:
    return np.array([value for tree in trees for value in getattr(tree, name)], np.int32)


def _depth(nodes: Nodes, roots: Indices) -> int:
    """Raises UnsupportedModelError for a cycle."""
    depth, visited, level = 0, len(roots), roots
    while len(inner := level[nodes.left[level] != level]):
        level = np.concatenate([nodes.left[inner], nodes.left[inner] + 1])
        depth += 1
        visited += len(level)
        if visited > len(nodes.left):
            raise UnsupportedModelError
    return depth


# The transforms repeat the library's float32 operations one by one, with the C library's expf and
# logf, for equal results.
_MATH = ctypes.CDLL(None)
for _name in ("expf", "logf"):
    getattr(_MATH, _name).argtypes = [ctypes.c_float]
    getattr(_MATH, _name).restype = ctypes.c_float


def _sigmoid(margins: Floats) -> Floats:
    unit = np.float32(1)
    powers = [_MATH.expf(min(-margin, 88.7)) for margin in margins.tolist()]
    return unit / ((np.array(powers, np.float32) + unit) + np.float32(1e-16))


def _exponential(margins: Floats) -> Floats:
    return np.array([_MATH.expf(margin) for margin in margins.tolist()], np.float32)


def _positive(margins: Floats) -> Floats:
    return (margins > 0).astype(np.float32)


def _single(base_score: float) -> float:
    return float(np.float32(base_score))


def _logit(base_score: float) -> float:
    if not 0 < base_score < 1:
        raise UnsupportedModelError
    unit = np.float32(1)
    return -float(_MATH.logf(unit / np.float32(base_score) - unit))


def _logarithm(base_score: float) -> float:
    return float(_MATH.logf(base_score))


class _OutputRule(NamedTuple):
    margin: Callable[[float], float]
    transform: Callable[[Floats], Floats] | None


_PLAIN = _OutputRule(_single, None)
_LOGISTIC = _OutputRule(_logit, _sigmoid)
_EXPONENTIAL = _OutputRule(_logarithm, _exponential)
_OBJECTIVES = {
    "reg:squarederror": _PLAIN,
    "reg:squaredlogerror": _PLAIN,
    "reg:pseudohubererror": _PLAIN,
    "reg:absoluteerror": _PLAIN,
    "rank:pairwise": _PLAIN,
    "rank:ndcg": _PLAIN,
    "rank:map": _PLAIN,
    "binary:hinge": _OutputRule(_single, _positive),
    "binary:logitraw": _PLAIN,
    "binary:logistic": _LOGISTIC,
    "reg:logistic": _LOGISTIC,
    "count:poisson": _EXPONENTIAL,
    "reg:gamma": _EXPONENTIAL,
    "reg:tweedie": _EXPONENTIAL,
}
