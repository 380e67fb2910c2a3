"""Predicts rows for several XGBoost models in one call: their trees side by side in NumPy's arrays.

The library predicts for one model a call, and in a call for one row nearly all the time goes beside
the trees: some 30 µs, and 30 more where the model is none of those used last (XGBoost 3.1 to 3.3
walk through the whole model for each row). In a container with a thousand models that is each call.
Here a level of all trees of all rows is one step, which costs a tenth of that for a row. Sums are
added up in the library's own order, in single precision: the same floats.

That they are the same is not believed but tried against the library when a model is loaded. What is
not understood here, or comes out otherwise, is left to the library.
"""

import ctypes
import math
import os
import random
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from sagehen.modelserver.adapters.xgboost_library import Booster, BoosterError

# Of a library that NumPy brings along and that nothing here uses: no threads, no buffers for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

__all__ = ["Forest", "ForestPool"]

MOST_NODES = 50_000
"""Of one forest: a larger one takes longer than what is saved matters."""
FIRST_NODES = 64 * 1024
TRIED_ROWS = 16
_TRIED_AS = (1, 1, 1, 0.99, math.nan)
"""What thresholds are multiplied by, for rows to try a forest with."""
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Indices = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


class _TreeParam(msgspec.Struct):
    size_leaf_vector: str = "1"


class _Tree(msgspec.Struct):
    left_children: list[int]
    right_children: list[int]
    split_indices: list[int]
    split_conditions: list[float]
    """Of a leaf: its value."""
    default_left: list[int]
    """Where a row goes whose feature is missing."""
    split_type: list[int] = []
    tree_param: _TreeParam = msgspec.field(default_factory=_TreeParam)


class _TreesParam(msgspec.Struct):
    num_parallel_tree: str = "1"


class _Trees(msgspec.Struct):
    trees: list[_Tree]
    tree_info: list[int]
    gbtree_model_param: _TreesParam


class _Gradient(msgspec.Struct):
    name: str
    model: _Trees | None = None


class _Objective(msgspec.Struct):
    name: str


class _LearnerParam(msgspec.Struct):
    base_score: str


class _Learner(msgspec.Struct):
    gradient_booster: _Gradient
    objective: _Objective
    learner_model_param: _LearnerParam


class _Model(msgspec.Struct):
    """XGBoost's JSON model, as far as it is needed."""

    learner: _Learner


_DECODER = msgspec.json.Decoder(_Model)
_MATH = ctypes.CDLL(None)
for _name in ("expf", "logf"):
    getattr(_MATH, _name).argtypes = [ctypes.c_float]
    getattr(_MATH, _name).restype = ctypes.c_float


def _sigmoid(margins: Floats) -> Floats:
    # Operation by operation as the library does it; its exponential is the C library's.
    one = np.float32(1)
    raised = [_MATH.expf(min(-margin, 88.7)) for margin in margins.tolist()]
    return one / ((np.array(raised, np.float32) + one) + np.float32(1e-16))


def _logit(base: float) -> float:
    one = np.float32(1)
    return -float(_MATH.logf(one / np.float32(base) - one))


def _same(value: float) -> float:
    return value


_AS_THEY_ARE = (_same, None)
_OBJECTIVES: dict[str, tuple[Callable[[float], float], Callable[[Floats], Floats] | None]] = {
    "reg:squarederror": _AS_THEY_ARE,
    "reg:squaredlogerror": _AS_THEY_ARE,
    "reg:pseudohubererror": _AS_THEY_ARE,
    "reg:absoluteerror": _AS_THEY_ARE,
    "reg:logistic": (_logit, _sigmoid),
    "binary:logistic": (_logit, _sigmoid),
}
"""By name: what a sum begins with, given the base score, and what becomes of sums, if anything."""


class Forest(NamedTuple):
    """One model's trees in a pool."""

    roots: Indices
    base: float
    depth: int
    transform: Callable[[Floats], Floats] | None
    start: int
    nodes: int


class _Nodes(NamedTuple):
    """The nodes of all forests. A forest's do not change while it is there."""

    feature: Indices
    threshold: Floats
    """A row with this or more goes to the right; infinity in a leaf, which no row has."""
    left: Indices
    """The right child is the one behind; a leaf's is itself."""
    value: Floats
    missing_right: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @staticmethod
    def of(count: int) -> "_Nodes":
        # What is not touched takes no memory.
        return _Nodes(
            np.empty(count, np.int32),
            np.empty(count, np.float32),
            np.empty(count, np.int32),
            np.empty(count, np.float32),
            np.empty(count, np.bool_),
        )


class ForestPool:
    """The forests of one process. Any thread may add and remove while another predicts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes = _Nodes.of(FIRST_NODES)
        self._free: list[tuple[int, int]] = [(0, FIRST_NODES)]
        """Where nodes may be put: begin and end, in order, no two of them side by side."""

    def add(self, booster: Booster) -> Forest | None:
        """The trees of a booster; None where it is better asked itself."""
        try:
            learner = _DECODER.decode(_saved(booster)).learner
            nodes, roots = _read_trees(learner, booster.rounds)
        except (_NotUnderstoodError, BoosterError, msgspec.MsgspecError):
            return None
        begin, transform = _OBJECTIVES[learner.objective.name]
        base = begin(float(np.float32(learner.learner_model_param.base_score.strip("[]"))))
        start = self._put(nodes)
        depth = _depth(nodes, roots)
        forest = Forest(roots + np.int32(start), base, depth, transform, start, len(nodes.feature))
        if self._agrees(forest, nodes, booster):
            return forest
        self.remove(forest)
        return None

    def remove(self, forest: Forest) -> None:
        """Its room is another's from now on: it must not be asked any more."""
        with self._lock:
            spans = sorted([*self._free, (forest.start, forest.start + forest.nodes)])
            joined = [spans[0]]
            for begin, end in spans[1:]:
                if begin == joined[-1][1]:
                    joined[-1] = (joined[-1][0], end)
                else:
                    joined.append((begin, end))
            self._free = joined

    def predict(self, rows: Sequence[tuple[Forest, "array[float]"]]) -> list[float]:
        """The score of each row, one at least; what is missing in one is NaN."""
        nodes = self._nodes
        forests = [forest for forest, _ in rows]
        counts = [len(forest.roots) for forest in forests]
        cells = np.frombuffer(b"".join([row for _, row in rows]), np.float32)
        at = forests[0].roots
        offsets: Indices | int = 0
        if len(rows) > 1:
            at = np.concatenate([forest.roots for forest in forests])
            begins = np.cumsum([0, *(len(row) for _, row in rows[:-1])], dtype=np.int32)
            offsets = np.repeat(begins, counts)
        complete = not np.isnan(cells).any()
        for _ in range(max([forest.depth for forest in forests])):
            asked = cells.take(nodes.feature.take(at) + offsets)
            right = asked >= nodes.threshold.take(at)
            if not complete:
                right |= np.isnan(asked) & nodes.missing_right.take(at)
            at = nodes.left.take(at) + right
        sums = _summed(nodes.value.take(at), counts, [forest.base for forest in forests])
        transform = forests[0].transform
        if len(rows) == 1 or all(forest.transform is transform for forest in forests):
            scores: list[float] = (sums if transform is None else transform(sums)).tolist()
            return scores
        return [
            float(sums[place] if forest.transform is None else forest.transform(sums[[place]])[0])
            for place, forest in enumerate(forests)
        ]

    def _put(self, nodes: _Nodes) -> int:
        """Where they are from now on."""
        count = len(nodes.feature)
        with self._lock:
            place = next(
                (at for at, (begin, end) in enumerate(self._free) if end - begin >= count), None
            )
            if place is None:
                place = self._grow(count)
            begin, end = self._free[place]
            self._free[place : place + 1] = [(begin + count, end)] if begin + count < end else []
            for kept, new in zip(self._nodes, nodes, strict=True):
                kept[begin : begin + count] = new
            # Children are counted from the forest's first node until here.
            self._nodes.left[begin : begin + count] += np.int32(begin)
            return begin

    def _grow(self, count: int) -> int:
        """Room for `count` nodes more; its place. A prediction goes on with what was there."""
        before = len(self._nodes.feature)
        after = 2 * max(before, count)
        grown = _Nodes.of(after)
        for old, new in zip(self._nodes, grown, strict=True):
            new[:before] = old
        self._nodes = grown
        if self._free and self._free[-1][1] == before:
            self._free[-1] = (self._free[-1][0], after)
        else:
            self._free.append((before, after))
        return len(self._free) - 1

    def _agrees(self, forest: Forest, nodes: _Nodes, booster: Booster) -> bool:
        """Whether both predict the same floats for rows about, and just at, the thresholds."""
        inner = np.isfinite(nodes.threshold)
        by_feature: dict[int, list[float]] = {}
        for feature, threshold in zip(
            nodes.feature[inner].tolist(), nodes.threshold[inner].tolist(), strict=True
        ):
            by_feature.setdefault(feature, []).append(threshold)
        chance = random.Random(1)

        def row() -> "array[float]":
            known = (by_feature.get(feature, [0.0]) for feature in range(booster.features))
            return array("f", [chance.choice(one) * chance.choice(_TRIED_AS) for one in known])

        rows = [row() for _ in range(TRIED_ROWS)]
        told = booster.predict(array("f", b"".join(rows)), TRIED_ROWS)
        if told.vectors or told.width != 1:
            return False
        return self.predict([(forest, one) for one in rows]) == told.values


class _NotUnderstoodError(Exception):
    """A model of a kind that is the library's."""


def _saved(booster: Booster) -> bytes:
    """The model as JSON. The library keeps what it has saved for the thread that asked, as long as
    this and the booster live: so it is asked by one that ends at once."""
    content: list[bytes] = []
    failed: list[BoosterError] = []

    def save() -> None:
        try:
            content.append(booster.save())
        except BoosterError as error:
            failed.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    saving.join()
    if failed:
        raise failed[0]
    return content[0]


def _read_trees(learner: _Learner, rounds: int) -> tuple[_Nodes, Indices]:
    """The nodes of all trees that count, and the roots; raises _NotUnderstoodError."""
    model = learner.gradient_booster.model
    base_score = learner.learner_model_param.base_score
    if learner.gradient_booster.name != "gbtree" or model is None or "," in base_score:
        raise _NotUnderstoodError
    if learner.objective.name not in _OBJECTIVES or any(model.tree_info):
        raise _NotUnderstoodError
    trees = model.trees
    if rounds:
        trees = trees[: rounds * int(model.gbtree_model_param.num_parallel_tree)]
    sizes = [len(tree.left_children) for tree in trees]
    if not trees or sum(sizes) > MOST_NODES:
        raise _NotUnderstoodError
    if any(any(tree.split_type) or int(tree.tree_param.size_leaf_vector) > 1 for tree in trees):
        raise _NotUnderstoodError
    roots = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
    return _joined(trees, np.repeat(roots, sizes)), roots


def _joined(trees: Sequence[_Tree], begins: Indices) -> _Nodes:
    """`begins`: of each node, where its tree does."""

    def column(name: str) -> Indices:
        return np.array([each for tree in trees for each in getattr(tree, name)], np.int32)

    left, right = column("left_children"), column("right_children")
    is_leaf = left < 0
    if not (is_leaf | (right == left + 1)).all():
        raise _NotUnderstoodError
    conditions = np.array([one for tree in trees for one in tree.split_conditions], np.float32)
    itself = np.arange(len(left), dtype=np.int32)
    return _Nodes(
        np.where(is_leaf, 0, column("split_indices")).astype(np.int32),
        np.where(is_leaf, np.float32(np.inf), conditions).astype(np.float32),
        np.where(is_leaf, itself, left + begins).astype(np.int32),
        np.where(is_leaf, conditions, 0).astype(np.float32),
        ~is_leaf & (column("default_left") == 0),
    )


def _depth(nodes: _Nodes, roots: Indices) -> int:
    """Steps from the roots to the farthest leaf."""
    depth, level = 0, roots
    while len(inner := level[nodes.left[level] != level]):
        level = np.concatenate([nodes.left[inner], nodes.left[inner] + 1])
        depth += 1
    return depth


def _summed(leaves: Floats, counts: Sequence[int], bases: Sequence[float]) -> Floats:
    """Each row's base and leaves, added up one after the other as the library does: a sum of floats
    depends on the order."""
    most = max(counts)
    sums = np.zeros((len(counts), most + 1), np.float32)
    sums[:, 0] = bases
    if min(counts) == most:
        sums[:, 1:] = leaves.reshape(len(counts), most)
    else:  # Behind the shorter ones are zeros, which change no sum.
        columns = np.concatenate([np.arange(1, count + 1) for count in counts])
        sums[np.repeat(np.arange(len(counts)), counts), columns] = leaves
    return np.add.accumulate(sums, axis=1)[:, -1]
