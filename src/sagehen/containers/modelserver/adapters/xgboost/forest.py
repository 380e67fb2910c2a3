"""Predicts rows for several XGBoost models in one call, with all trees in NumPy arrays.

The library predicts for one model per call. For one row, some 35 µs of a call are overhead, and 30
more if the model is not in the processor's cache (XGBoost 3.1 to 3.3 read the whole model each
time). Here one step moves all trees of all rows a level down. Sums use the library's order and
single precision, so scores are equal bit for bit. Each model is compared with the library when it
is added; unsupported or unequal ones are left to the library.
"""

import random
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from sagehen.containers.modelserver.adapters.shared.table import Table
from sagehen.containers.modelserver.adapters.xgboost.library import Booster
from sagehen.containers.modelserver.adapters.xgboost.trees import (
    Floats,
    Indices,
    Nodes,
    Trees,
    UnsupportedModelError,
    read_trees,
)

__all__ = ["MAX_JOINT_ROWS", "Forest", "ForestPool", "JointPredictor", "Row"]

INITIAL_NODES = 64 * 1024
MAX_WALKED_TREES = 64 * 1024
"""Trees walked at once; limits a call to a few megabytes."""
COMPARED_ROWS = 16
MAX_JOINT_ROWS = 12
"""Rows of one model in a joint call; for more, the library is quicker."""

Span = tuple[int, int]
"""Index of the first node and after the last."""


class Forest(NamedTuple):
    """One model's trees in a pool."""

    roots: Indices
    base: float
    depth: int
    transform: Callable[[Floats], Floats] | None
    span: Span


Row = tuple[Forest, "array[float]"]
"""Float32 cells (NaN is missing) and the forest that scores them."""


class ForestPool:
    """The forests of one process. Threads may add and remove while another predicts.

    Predictions use the arrays of their start. A forest's nodes do not change; resizing copies the
    arrays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes = Nodes.empty(INITIAL_NODES)
        self._free: list[Span] = [(0, INITIAL_NODES)]
        """Unused spans, sorted and merged."""

    def add(self, booster: Booster) -> Forest | None:
        """Copies the booster's trees; returns None if only the library can predict."""
        try:
            trees = read_trees(booster)
        except UnsupportedModelError:
            return None
        span = self._store(trees.nodes)
        roots = trees.roots + np.int32(span[0])
        forest = Forest(roots, trees.base, trees.depth, trees.transform, span)
        if self._predicts_like(forest, trees, booster):
            return forest
        self.remove(forest)
        return None

    def remove(self, forest: Forest) -> None:
        """The forest must not be predicted afterwards."""
        with self._lock:
            first, *others = sorted([*self._free, forest.span])
            joined = [first]
            for begin, end in others:
                if begin == joined[-1][1]:
                    joined[-1] = (joined[-1][0], end)
                else:
                    joined.append((begin, end))
            self._free = joined
            self._shrink()

    def predict(self, rows: Sequence[Row]) -> list[float]:
        nodes = self._nodes
        return [score for part in _parts(rows) for score in _predict(nodes, part)]

    def _store(self, nodes: Nodes) -> Span:
        count = len(nodes.feature)
        with self._lock:
            fitting = (at for at, (begin, end) in enumerate(self._free) if end - begin >= count)
            at = next(fitting, None)
            if at is None:
                at = self._grow(count)
            begin, end = self._free[at]
            self._free[at : at + 1] = [(begin + count, end)] if begin + count < end else []
            for stored, new in zip(self._nodes, nodes, strict=True):
                stored[begin : begin + count] = new
            # `nodes` counts children from the forest's first node.
            self._nodes.left[begin : begin + count] += np.int32(begin)
            return begin, begin + count

    def _grow(self, count: int) -> int:
        size = len(self._nodes.feature)
        new_size = 2 * max(size, count)
        self._resize(new_size)
        if self._free and self._free[-1][1] == size:
            self._free[-1] = (self._free[-1][0], new_size)
        else:
            self._free.append((size, new_size))
        return len(self._free) - 1

    def _shrink(self) -> None:
        """Frees memory when the last three quarters are unused."""
        begin, end = self._free[-1]
        new_size = max(INITIAL_NODES, 2 * begin)
        if end == len(self._nodes.feature) and begin <= end // 4 and new_size < end:
            self._resize(new_size)
            self._free[-1] = (begin, new_size)

    def _resize(self, size: int) -> None:
        count = min(size, len(self._nodes.feature))
        resized = Nodes.empty(size)
        for old, new in zip(self._nodes, resized, strict=True):
            new[:count] = old[:count]
        self._nodes = resized

    def _predicts_like(self, forest: Forest, trees: Trees, booster: Booster) -> bool:
        """Compares scores of rows at the thresholds, just below them, and without cells."""
        rows = _rows_at_thresholds(trees.nodes, booster.features)
        expected = booster.predict(array("f", b"".join(rows)), len(rows))
        if expected.vectors or expected.width != 1:
            return False
        scores = self.predict([(forest, row) for row in rows])
        return array("f", scores).tobytes() == array("f", expected.values).tobytes()


def _rows_at_thresholds(nodes: Nodes, features: int) -> "list[array[float]]":
    cells = np.zeros((COMPARED_ROWS, features), np.float32)
    inner = np.isfinite(nodes.threshold)
    thresholds: dict[int, list[float]] = {}
    for feature, threshold in zip(
        nodes.feature[inner].tolist(), nodes.threshold[inner].tolist(), strict=True
    ):
        thresholds.setdefault(feature, []).append(threshold)
    chance = random.Random(1)  # same rows at each load
    for feature, values in thresholds.items():
        at = np.array(chance.choices(values, k=COMPARED_ROWS), np.float32)
        below = np.nextafter(at, np.float32(-np.inf))
        missing = np.full_like(at, np.nan)
        kinds = chance.choices((0, 0, 1, 1, 2), k=COMPARED_ROWS)
        cells[:, feature] = np.choose(kinds, (at, below, missing))
    return [array("f", row.tobytes()) for row in cells]


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Splits rows by MAX_WALKED_TREES."""
    begin = trees = 0
    for at, (forest, _) in enumerate(rows):
        trees += len(forest.roots)
        if trees > MAX_WALKED_TREES and at > begin:
            yield rows[begin:at]
            begin, trees = at, len(forest.roots)
    if rows:
        yield rows[begin:] if begin else rows


def _predict(nodes: Nodes, rows: Sequence[Row]) -> list[float]:
    forests = [forest for forest, _ in rows]
    counts = [len(forest.roots) for forest in forests]
    cells = np.frombuffer(b"".join([row for _, row in rows]), np.float32)
    at = forests[0].roots
    offsets: Indices | int = 0
    """Per tree, the start of its row's cells."""
    if len(rows) > 1:
        at = np.concatenate([forest.roots for forest in forests])
        begins = np.cumsum([0, *(len(row) for _, row in rows[:-1])], dtype=np.int32)
        offsets = np.repeat(begins, counts)
    complete = not np.isnan(cells).any()
    for _ in range(max([forest.depth for forest in forests])):
        compared = cells.take(nodes.feature.take(at) + offsets)
        right = compared >= nodes.threshold.take(at)
        if not complete:
            right |= np.isnan(compared) & nodes.missing_right.take(at)
        at = nodes.left.take(at) + right
    sums = _sums(nodes.value.take(at), counts, [forest.base for forest in forests])
    return _scores(sums, forests)


def _sums(leaves: Floats, counts: Sequence[int], bases: Sequence[float]) -> Floats:
    """Adds each row's leaves to its base in order: float sums depend on it."""
    width = max(counts)
    members = np.full((len(counts), width + 1), -0.0, np.float32)
    members[:, 0] = bases
    if min(counts) == width:
        members[:, 1:] = leaves.reshape(len(counts), width)
    else:  # Padding with -0.0 changes no sum.
        columns = np.concatenate([np.arange(1, count + 1) for count in counts])
        members[np.repeat(np.arange(len(counts)), counts), columns] = leaves
    return np.add.accumulate(members, axis=1)[:, -1]


def _scores(sums: Floats, forests: Sequence[Forest]) -> list[float]:
    transform = forests[0].transform
    if len(forests) == 1 or all(forest.transform is transform for forest in forests):
        scores: list[float] = (sums if transform is None else transform(sums)).tolist()
        return scores
    return [
        float(sums[at] if forest.transform is None else forest.transform(sums[[at]])[0])
        for at, forest in enumerate(forests)
    ]


class Model(Protocol):
    """The part of XGBoostModel used here."""

    @property
    def joint_forest(self) -> Forest: ...

    def predict_if_free(self, batch: Sequence[Table], /) -> list[list[Any]] | None: ...


class JointPredictor:
    """Implements the contract's JointPrediction."""

    def __init__(self, pool: "ForestPool") -> None:
        self.pool = pool
        self._last: Callable[[], Model | None] = lambda: None

    def predict_jointly(self, batch: Sequence[tuple[Model, Table]]) -> list[list[Any]]:
        rows: dict[Model, int] = {}
        for model, table in batch:
            rows[model] = rows.get(model, 0) + table.count
        if len(rows) == 1:
            return self._predict_single_model(batch)
        separate = {model for model, count in rows.items() if count > MAX_JOINT_ROWS}
        return (
            self._predict_separately(batch, separate) if separate else self._predict_together(batch)
        )

    def _predict_single_model(self, batch: Sequence[tuple[Model, Table]]) -> list[list[Any]]:
        """Uses the library, except for one row of a model outside the processor's cache."""
        model = batch[0][0]
        if model is self._last() or sum(table.count for _, table in batch) > 1:
            scores = model.predict_if_free([table for _, table in batch])
            if scores is not None:
                return scores
        self._last = weakref.ref(model)
        return self._predict_together(batch)

    def _predict_separately(
        self, batch: Sequence[tuple[Model, Table]], separate: set[Model]
    ) -> list[list[Any]]:
        """Lets models in `separate` predict, unless busy."""
        predictions: list[list[Any]] = [[] for _ in batch]
        joint_indices = [index for index, (model, _) in enumerate(batch) if model not in separate]
        for model in separate:
            indices = [index for index, (other, _) in enumerate(batch) if other is model]
            scores = model.predict_if_free([batch[index][1] for index in indices])
            if scores is None:
                joint_indices += indices
                continue
            for index, prediction in zip(indices, scores, strict=True):
                predictions[index] = prediction
        rest = self._predict_together([batch[index] for index in joint_indices])
        for index, prediction in zip(joint_indices, rest, strict=True):
            predictions[index] = prediction
        return predictions

    def _predict_together(self, batch: Sequence[tuple[Model, Table]]) -> list[list[Any]]:
        rows = [(model.joint_forest, row) for model, table in batch for row in table.rows()]
        scores = self.pool.predict(rows)
        if len(rows) == len(batch) and all(table.count == 1 for _, table in batch):
            return [[score] for score in scores]
        following = iter(scores)
        return [list(islice(following, table.count)) for _, table in batch]
