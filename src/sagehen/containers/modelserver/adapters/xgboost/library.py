"""Calls XGBoost's C library without its Python package.

The package imports scipy, pandas and scikit-learn: a second and 150 MB. The C API is documented and
stable.
"""

import ctypes
import importlib.util
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.extras import missing_library, pip_install
from sagehen.containers.modelserver.serving.malloc_trim import join_freed_pieces

__all__ = ["Booster", "BoosterError", "Library", "Scores", "average", "find_library", "vote"]

_LEAST_FUNCTION = "XGBoosterPredictFromDMatrix"
"""There since 1.5; before, functions of the same names as ours took other arguments."""
MANY_ROWS = 10_000
"""some ten milliseconds of work"""
_DENSE = b'{"data":[%d,true],"shape":[%d,%d],"typestr":"<f4","version":3}'


class BoosterError(SagehenError):
    """The library reported an error."""


class Scores(NamedTuple):
    """Holds `width` numbers per row, flat; `vectors` tells lists of one number from numbers."""

    values: list[float]
    width: int
    vectors: bool


class Library:
    """The loaded shared library."""

    def __init__(self, path: Path) -> None:
        join_freed_pieces()
        self._library = ctypes.CDLL(str(path))
        self._library.XGBGetLastError.restype = ctypes.c_char_p
        if not hasattr(self._library, _LEAST_FUNCTION):
            raise Unavailable(
                "The XGBoost of this container's Python is older than 1.5, and its C interface is "
                "not that which the model server calls. XGBoost 3.0 reads the models and pickles "
                'of all older versions: set image_versions = "installed" in sagehen.toml, with it '
                f"where Sagehen runs ({pip_install('xgboost')})."
            )
        parts = [ctypes.c_int() for _ in range(3)]
        self._library.XGBoostVersion(*map(ctypes.byref, parts))
        self.version = (parts[0].value, parts[1].value, parts[2].value)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises BoosterError, or MemoryError if allocation failed."""
        if getattr(self._library, name)(*arguments) != 0:
            self.fail()

    def function(self, name: str) -> Any:
        return getattr(self._library, name)

    def fail(self) -> None:
        text = self._library.XGBGetLastError().decode(errors="replace")
        reason = text.partition("\nStack trace:")[0].strip()
        if "bad_alloc" in reason or "emory allocation" in reason:
            raise MemoryError(reason)
        raise BoosterError(reason)


def find_library() -> Library:
    """Raises Unavailable if XGBoost is not installed."""
    spec = importlib.util.find_spec("xgboost")
    for folder in (spec and spec.submodule_search_locations) or ():
        for name in ("libxgboost.so", "libxgboost.dylib"):
            path = Path(folder, "lib", name)
            if path.exists():
                return Library(path)
    raise missing_library("XGBoost", "xgboost")


class Booster:
    """A model that predicts with all trees, or up to the best iteration if set."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        # Without a proxy, each call creates one and rereads the machine's limits, most of a row's
        # time.
        self._proxy = ctypes.c_void_p()
        library.call("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(self._handle))
        library.call("XGProxyDMatrixCreate", ctypes.byref(self._proxy))
        self._shape = ctypes.POINTER(ctypes.c_uint64)()
        self._dimensions = ctypes.c_uint64()
        self._values = ctypes.POINTER(ctypes.c_float)()
        self._results = tuple(
            ctypes.byref(part) for part in (self._shape, self._dimensions, self._values)
        )
        self._predict_dense = library.function("XGBoosterPredictFromDense")
        self.content_bytes = 0
        """Size of the model's file or pickle."""
        self.features = 0
        self.rounds = 0
        """Rounds used; 0 for all."""
        self.objective = ""
        self.classes = 0
        self.most_threads = 1
        """for calls with MANY_ROWS; each row is one thread's, so that answers are the same"""
        self._threads = 1

    def load(self, content: bytes) -> None:
        """Reads JSON, UBJSON or the old binary form."""
        if len(content) < 2:  # the library would abort the process
            raise BoosterError(f"the file has {len(content)} bytes")
        self._library.call("XGBoosterLoadModelFromBuffer", *self._buffer(content))
        self._prepare()

    def unserialize(self, content: bytes) -> None:
        self._library.call("XGBoosterUnserializeFromBuffer", *self._buffer(content))
        self._prepare()

    def _buffer(self, content: bytes) -> tuple[Any, Any, Any]:
        self.content_bytes = len(content)
        return self._handle, content, ctypes.c_uint64(len(content))

    def _prepare(self) -> None:
        # One thread, as in SageMaker's container: more slow small batches down.
        self._set_threads(1)
        learner = self._configuration()["learner"]
        self.features = int(learner["learner_model_param"]["num_feature"])
        self.classes = int(learner["learner_model_param"]["num_class"])
        self.objective = str(learner["objective"]["name"])
        # From plain memory the linear booster cannot predict, and dart sums in another order.
        self._needs_matrix = learner["gradient_booster"]["name"] != "gbtree"
        best = self._attribute(b"best_iteration")
        self.rounds = int(best) + 1 if best else 0
        settings = {
            "type": 0,
            "training": False,
            "iteration_begin": 0,
            "iteration_end": self.rounds,
            "missing": float("nan"),
            "strict_shape": False,
            "cache_id": 0,
        }
        self._settings = json.dumps(settings).encode()

    def _set_threads(self, threads: int) -> None:
        self._library.call("XGBoosterSetParam", self._handle, b"nthread", b"%d" % threads)
        self._threads = threads

    def save(self) -> bytes:
        """Raises BoosterError."""
        length, content = ctypes.c_uint64(), ctypes.POINTER(ctypes.c_char)()
        self._library.call(
            "XGBoosterSaveModelToBuffer",
            self._handle,
            b'{"format":"json"}',
            ctypes.byref(length),
            ctypes.byref(content),
        )
        return ctypes.string_at(content, length.value)

    def _configuration(self) -> Any:
        length, text = ctypes.c_uint64(), ctypes.c_char_p()
        self._library.call(
            "XGBoosterSaveJsonConfig", self._handle, ctypes.byref(length), ctypes.byref(text)
        )
        return json.loads(text.value or b"{}")

    def _attribute(self, name: bytes) -> str:
        value, exists = ctypes.c_char_p(), ctypes.c_int()
        self._library.call(
            "XGBoosterGetAttr", self._handle, name, ctypes.byref(value), ctypes.byref(exists)
        )
        return (value.value or b"").decode() if exists.value else ""

    def predict(self, cells: "array[float]", rows: int) -> Scores:
        """Predicts `rows` rows of `features` numbers; NaN is missing. Not thread-safe. Raises
        BoosterError.
        """
        if len(cells) != rows * self.features:  # the library would read beyond the array
            raise BoosterError(f"{rows} rows need {self.features} features each")
        if self.most_threads > 1:
            threads = self.most_threads if rows >= MANY_ROWS else 1
            if threads != self._threads:
                self._set_threads(threads)
        address = cells.buffer_info()[0]
        dense = _DENSE % (address, rows, self.features)
        if self._needs_matrix:
            self._predict_matrix(dense)
        elif self._predict_dense(self._handle, dense, self._settings, self._proxy, *self._results):
            self._library.fail()
        vectors = self._dimensions.value > 1
        total = 1
        for axis in range(self._dimensions.value):
            total *= self._shape[axis]
        return Scores(self._values[:total], total // rows, vectors)

    def _predict_matrix(self, dense: bytes) -> None:
        matrix = ctypes.c_void_p()
        self._library.call(
            "XGDMatrixCreateFromDense",
            dense,
            b'{"missing":NaN,"nthread":1}',
            ctypes.byref(matrix),
        )
        try:
            self._library.call(
                "XGBoosterPredictFromDMatrix", self._handle, matrix, self._settings, *self._results
            )
        finally:
            self._library.call("XGDMatrixFree", matrix)

    def close(self) -> None:
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.call("XGBoosterFree", handle)
        proxy, self._proxy = self._proxy, ctypes.c_void_p()
        if proxy:
            self._library.call("XGDMatrixFree", proxy)

    def __del__(self) -> None:
        self.close()


def average(members: Sequence[list[float]]) -> list[float]:
    """Averages in single precision, like numpy's float32 mean."""
    total = array("f", members[0])
    for member in members[1:]:
        total = array("f", map(float.__add__, total, member))
    return array("f", (value / len(members) for value in total)).tolist()


def vote(members: Sequence[list[float]]) -> list[float]:
    """Returns the most frequent label, the lowest of equals."""
    columns = zip(*members, strict=True)
    return [max(sorted(set(column)), key=column.count) for column in columns]
