"""Serves XGBoost models like SageMaker's XGBoost container."""

import io
import pickle
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared.arrays import split_rows
from sagehen.containers.modelserver.adapters.shared.codecs import (
    UnsupportedFormat,
    accepted_type,
    media_type,
)
from sagehen.containers.modelserver.adapters.shared.recordio import parse_recordio
from sagehen.containers.modelserver.adapters.shared.table import (
    Table,
    has_infinity,
    parse_csv,
    parse_libsvm,
    prepare_for_large_csv,
)
from sagehen.containers.modelserver.adapters.xgboost.files import (
    LoadedFile,
    load_boosters,
    model_files,
)
from sagehen.containers.modelserver.adapters.xgboost.library import (
    Booster,
    BoosterError,
    Library,
    Scores,
    average,
    find_library,
    vote,
)
from sagehen.containers.modelserver.adapters.xgboost.outputs import (
    ACCEPTED,
    CSV,
    JSON,
    RECORDIO,
    choose_encoders,
    select_outputs,
)
from sagehen.containers.modelserver.contract import BatchModel, ModelAnswer, Refusal
from sagehen.containers.modelserver.environment import Environment

if TYPE_CHECKING:
    from sagehen.containers.modelserver.adapters.xgboost.forest import Forest, JointPredictor

__all__ = ["XGBoostAdapter", "XGBoostModel", "adapter"]

_FORMS = {
    "": "libsvm",
    "csv": "csv",
    CSV: "csv",
    "libsvm": "libsvm",
    "text/libsvm": "libsvm",
    "text/x-libsvm": "libsvm",
    "recordio-protobuf": "recordio-protobuf",
    RECORDIO: "recordio-protobuf",
}
_VOTING = {"multi:softmax", "binary:hinge"}
_NO_CONTENT = ModelAnswer(204)


def adapter(environment: Environment) -> "XGBoostAdapter":
    """Raises Unavailable if XGBoost is not installed."""
    return XGBoostAdapter(environment, find_library())


class XGBoostAdapter(ScriptAdapter):
    """Loads the built-in algorithm's models, and those with a script."""

    def __init__(self, environment: Environment, library: Library) -> None:
        super().__init__(environment)
        self._library = library
        self._joint_predictor: JointPredictor | None = None
        self._joint_lock = threading.Lock()

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(_load_booster, _to_matrix, _predict, encode_accepted)

    def _load_model(self, model_dir: Path) -> BatchModel:
        if self._environment.is_batch:
            prepare_for_large_csv()
        files = load_boosters(self._library, model_dir, self._environment.ensemble)
        joint = self._joint() if self._environment.multi_model else None
        return XGBoostModel(files, self._environment, joint)

    def _joint(self) -> "JointPredictor":
        """Shared by all models, which two threads may load at once."""
        with self._joint_lock:
            if self._joint_predictor is None:
                # Imports NumPy, which single models and workers do not need.
                from sagehen.containers.modelserver.adapters.xgboost.forest import (
                    ForestPool,
                    JointPredictor,
                )

                self._joint_predictor = JointPredictor(ForestPool())
            return self._joint_predictor


class XGBoostModel:
    """Serves a model, or several by average or vote."""

    def __init__(
        self,
        files: Sequence[LoadedFile],
        environment: Environment,
        joint: "JointPredictor | None" = None,
    ) -> None:
        self._boosters: list[Booster] = [file.booster for file in files]
        for booster in self._boosters:
            booster.most_threads = environment.most_threads if environment.is_batch else 1
        self._predicting = threading.Lock()
        """Only one thread may use a booster."""
        self._strict = files[0].pickled
        self._features = self._boosters[0].features
        self._objective = self._boosters[0].objective
        self._classes = self._boosters[0].classes
        self._selected = environment.inference_output
        self._default_accept = environment.default_accept or (
            JSON if environment.multi_model else CSV
        )
        self._encoders = choose_encoders(
            bool(self._selected), environment.multi_model, environment.is_batch
        )
        self._warm_up()
        self._forest: Forest | None = None
        self._pool = None
        if joint is not None and len(self._boosters) == 1:
            self._pool = joint.pool
            self._forest = joint.pool.add(self._boosters[0])
        self.joint = joint if self._forest is not None else None
        """Predicts these rows with those of other models; None if unsupported."""

    @property
    def joint_forest(self) -> "Forest":
        if self._forest is None:
            raise RuntimeError("the model is closed, or is not predicted with others")
        return self._forest

    def _warm_up(self) -> None:
        """Prepares the trees before the first request."""
        blank = array("f", [float("nan")]) * self._features
        for booster in self._boosters:
            booster.predict(blank, 1)

    def decode(self, body: bytes, content_type: str) -> Table:
        if not body:
            return Table(0, 0, array("f"))
        form = "csv" if content_type == CSV else _FORMS.get(media_type(content_type))
        if form is None:
            raise Refusal(415, _not_accepted(content_type))
        try:
            table = self._parse(body, form)
            if has_infinity(table.cells):
                raise ValueError("the data contains an infinity or a number that is too large")
        except ValueError as error:
            raise Refusal(
                415,
                f"Loading {form} data failed with Exception, please ensure data is in {form} "
                f"format:\n {type(error)}\n {error}",
            ) from error
        return table if table.columns == self._features else self._padded(table, form)

    def _parse(self, body: bytes, form: str) -> Table:
        if form == "csv":
            return parse_csv(body)
        if form == "libsvm":
            return parse_libsvm(body, self._features)
        return parse_recordio(body)

    def _padded(self, table: Table, form: str) -> Table:
        """Fills missing last columns with missing values, as XGBoost does."""
        columns, trained = table.columns, self._features
        if columns > trained or (self._strict and form != "libsvm" and columns + 1 < trained):
            relation = "larger than" if form == "libsvm" else "not consistent with"
            raise Refusal(
                400,
                f"Unable to evaluate payload provided: Feature size of {form} inference data "
                f"{columns} is {relation} feature size of trained model {trained}.",
            )
        padding = array("f", [float("nan")]) * (trained - columns)
        cells = array("f")
        for row in range(table.count):
            cells += table.cells[row * columns : (row + 1) * columns]
            cells += padding
        return Table(table.count, trained, cells)

    def predict(self, batch: Sequence[Table]) -> list[list[Any]]:
        """Returns a score per row: a number or a list."""
        with self._predicting:
            return self._predict(batch)

    def predict_if_free(self, batch: Sequence[Table]) -> list[list[Any]] | None:
        """Like `predict`, but returns None if another thread is predicting.

        Raises RuntimeError if the model is closed.
        """
        if self.joint is not None and self._forest is None:
            raise RuntimeError("the model is closed")
        if not self._predicting.acquire(blocking=False):
            return None
        try:
            return self._predict(batch)
        finally:
            self._predicting.release()

    def _predict(self, batch: Sequence[Table]) -> list[list[Any]]:
        rows = sum(table.count for table in batch)
        if rows == 0:
            return [[] for _ in batch]
        cells = batch[0].cells
        if len(batch) > 1:
            cells = array("f", b"".join([table.cells for table in batch]))
        try:
            scores = self._scores(cells, rows)
        except BoosterError as error:
            raise Refusal(400, f"Unable to evaluate payload provided: {error}") from error
        values: list[Any] = scores.values
        if scores.vectors:
            width = scores.width
            values = [values[start : start + width] for start in range(0, rows * width, width)]
        if len(batch) == 1:
            return [values]
        return split_rows(values, [table.count for table in batch])

    def _scores(self, cells: "array[float]", rows: int) -> Scores:
        members = [booster.predict(cells, rows) for booster in self._boosters]
        if len(members) == 1:
            return members[0]
        combine = vote if self._objective in _VOTING else average
        return members[0]._replace(values=combine([member.values for member in members]))

    def encode(self, prediction: list[Any], accept: str) -> ModelAnswer:
        if not prediction:
            return _NO_CONTENT
        accept = accepted_type(accept, self._default_accept)
        encoder = self._encoders.get(accept) or self._encoders.get(media_type(accept))
        if encoder is None:
            raise Refusal(
                406,
                f"Accept type {media_type(accept)} is not supported. "
                f"Please use supported accept types: {list(ACCEPTED)}.",
            )
        return encoder(self._selection(prediction) if self._selected else prediction)

    def _selection(self, prediction: list[Any]) -> list[Any]:
        try:
            return select_outputs(prediction, self._selected, self._objective, self._classes)
        except ValueError as error:
            raise Refusal(500, str(error)) from error

    def close(self) -> None:
        if self._forest is not None and self._pool is not None:
            self._pool.remove(self._forest)
            self._forest = None
        for booster in self._boosters:
            booster.close()


def _not_accepted(content_type: str) -> str:
    return f"{content_type} is not an accepted ContentType: {', '.join(filter(None, _FORMS))}."


# Defaults for scripts, by the XGBoost package

_PARSERS: dict[str, Callable[[bytes], Table]] = {
    CSV: parse_csv,
    "text/libsvm": parse_libsvm,
    "text/x-libsvm": parse_libsvm,
    RECORDIO: parse_recordio,
}


def _load_booster(model_dir: str) -> Any:
    """Loads the archive's first file; SageMaker requires a model_fn instead."""
    import xgboost

    content = model_files(Path(model_dir))[0].read_bytes()
    if content[:1] != b"{":
        return pickle.load(io.BytesIO(content))
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(content))
    return booster


def _to_matrix(data: Any, content_type: str) -> Any:
    import numpy
    import xgboost

    parse = _PARSERS.get(media_type(content_type or "text/libsvm"))
    if parse is None:
        raise UnsupportedFormat(content_type)
    table = parse(data.encode() if isinstance(data, str) else data)
    cells = numpy.array(table.cells, dtype=numpy.float32).reshape(table.count, table.columns)
    return xgboost.DMatrix(cells, nthread=1)


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data, validate_features=False)
