"""Serves XGBoost models like SageMaker's XGBoost container."""

import json
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagehen.containers.modelserver.adapters.script.script import Scripted, find_script
from sagehen.containers.modelserver.adapters.shared.codecs import json_text, media_type
from sagehen.containers.modelserver.adapters.shared.recordio import (
    parse_recordio,
    write_recordio,
)
from sagehen.containers.modelserver.adapters.shared.table import Table, parse_csv, parse_libsvm
from sagehen.containers.modelserver.adapters.xgboost.files import LoadedFile, load_boosters
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
    select_outputs,
    selected_csv,
)
from sagehen.containers.modelserver.adapters.xgboost.script import load_script_model
from sagehen.containers.modelserver.contract import BatchModel, CallModel, ModelAnswer, Refusal
from sagehen.containers.modelserver.environment import Environment

if TYPE_CHECKING:
    from sagehen.containers.modelserver.adapters.xgboost.forest import Forest, JointPredictor

__all__ = ["XGBoostAdapter", "XGBoostModel", "adapter"]

CSV, JSON, JSON_LINES = "text/csv", "application/json", "application/jsonlines"
RECORDIO = "application/x-recordio-protobuf"
ACCEPTED = (JSON, JSON_LINES, CSV)
"""Also RECORDIO, if outputs are selected."""
CSV_ANSWER = "text/csv; charset=utf-8"

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
_INFINITY = float("inf")
_NO_CONTENT = ModelAnswer(204)


def adapter(environment: Environment) -> "XGBoostAdapter":
    """Raises Unavailable if XGBoost is not installed."""
    return XGBoostAdapter(environment, find_library())


class XGBoostAdapter(Scripted):
    """Loads the built-in algorithm's models, and those with a script."""

    def __init__(self, environment: Environment, library: Library) -> None:
        super().__init__(environment)
        self._library = library
        self._joint_predictor: JointPredictor | None = None
        self._making = threading.Lock()

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        script = find_script(model_dir, self._environment)
        if script is not None:
            return load_script_model(script, model_dir, self._environment)
        files = load_boosters(self._library, model_dir, self._environment.ensemble)
        joint = self._joint() if self._environment.multi_model else None
        return XGBoostModel(files, self._environment, joint)

    def _joint(self) -> "JointPredictor":
        """Shared by all models, which two threads may load at once."""
        with self._making:
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
        self._predicting = threading.Lock()
        """Only one thread may use a booster."""
        self._strict = files[0].pickled
        self._features = self._boosters[0].features
        self._objective = self._boosters[0].objective
        self._classes = self._boosters[0].classes
        self._selected = environment.inference_output
        # SageMaker's single-model container answers CSV by default and wraps JSON scores; its
        # multi-model container answers a plain JSON list.
        self._multi_model = environment.multi_model
        self._default_accept = environment.default_accept or (
            JSON if environment.multi_model else CSV
        )
        self._encoders = self._choose_encoders()
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
            table = self._parsed(body, form)
            if _INFINITY in table.cells or -_INFINITY in table.cells:
                raise ValueError("the data contains an infinity or a number that is too large")
        except ValueError as problem:
            raise Refusal(
                415,
                f"Loading {form} data failed with Exception, please ensure data is in {form} "
                f"format:\n {type(problem)}\n {problem}",
            ) from problem
        return table if table.columns == self._features else self._fitted(table, form)

    def _parsed(self, body: bytes, form: str) -> Table:
        if form == "csv":
            return parse_csv(body)
        if form == "libsvm":
            return parse_libsvm(body, self._features)
        return parse_recordio(body)

    def _fitted(self, table: Table, form: str) -> Table:
        """Fills missing last columns with missing values, as XGBoost does."""
        given, trained = table.columns, self._features
        if given > trained or (self._strict and form != "libsvm" and given + 1 < trained):
            relation = "larger than" if form == "libsvm" else "not consistent with"
            raise Refusal(
                400,
                f"Unable to evaluate payload provided: Feature size of {form} inference data "
                f"{given} is {relation} feature size of trained model {trained}.",
            )
        padding = array("f", [float("nan")]) * (trained - given)
        cells = array("f")
        for row in range(table.count):
            cells += table.cells[row * given : (row + 1) * given]
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
        except BoosterError as problem:
            raise Refusal(400, f"Unable to evaluate payload provided: {problem}") from problem
        values: list[Any] = scores.values
        if scores.vectors:
            width = scores.width
            values = [values[start : start + width] for start in range(0, rows * width, width)]
        if len(batch) == 1:
            return [values]
        predictions, at = [], 0
        for table in batch:
            predictions.append(values[at : at + table.count])
            at += table.count
        return predictions

    def _scores(self, cells: "array[float]", rows: int) -> Scores:
        members = [booster.predict(cells, rows) for booster in self._boosters]
        if len(members) == 1:
            return members[0]
        together = vote if self._objective in _VOTING else average
        return members[0]._replace(values=together([member.values for member in members]))

    def encode(self, prediction: list[Any], accept: str) -> ModelAnswer:
        if not prediction:
            return _NO_CONTENT
        if not accept or accept == "*/*":
            accept = self._default_accept
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
        except ValueError as problem:
            raise Refusal(500, str(problem)) from problem

    def _choose_encoders(self) -> dict[str, Callable[[list[Any]], ModelAnswer]]:
        csv: Callable[[list[Any]], ModelAnswer] = _selected_csv if self._selected else _csv
        plain = self._multi_model and not self._selected
        wrap = _plain_json if plain else _selected_json if self._selected else _scores_json
        lines = _selected_lines if self._selected else _lines
        encoders = {CSV: csv, "csv": csv, JSON: wrap, "json": wrap, JSON_LINES: lines}
        return {**encoders, RECORDIO: _selected_records} if self._selected else encoders

    def close(self) -> None:
        if self._forest is not None and self._pool is not None:
            self._pool.remove(self._forest)
            self._forest = None
        for booster in self._boosters:
            booster.close()


def _csv(scores: list[Any]) -> ModelAnswer:
    """Writes one line, or a line per row for several scores."""
    if isinstance(scores[0], list):
        text = "\n".join(",".join(map(repr, row)) for row in scores)
    else:
        text = ",".join(map(repr, scores))
    return ModelAnswer(200, text.encode(), CSV_ANSWER)


def _scores_json(scores: list[Any]) -> ModelAnswer:
    content = {"predictions": [{"score": score} for score in scores]}
    return ModelAnswer(200, json_text(content).encode(), JSON)


def _plain_json(scores: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, json_text(scores).encode(), JSON)


def _lines(scores: list[Any]) -> ModelAnswer:
    return _selected_lines([{"score": score} for score in scores])


def _selected_csv(rows: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, selected_csv(rows).encode(), CSV_ANSWER)


def _selected_json(rows: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, json_text({"predictions": rows}).encode(), JSON)


def _selected_lines(rows: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, "".join(f"{json.dumps(row)}\n" for row in rows).encode(), JSON_LINES)


def _selected_records(rows: list[Any]) -> ModelAnswer:
    records = [
        {key: value if isinstance(value, list) else [value] for key, value in row.items()}
        for row in rows
    ]
    return ModelAnswer(200, write_recordio(records), RECORDIO)


def _not_accepted(content_type: str) -> str:
    return f"{content_type} is not an accepted ContentType: {', '.join(filter(None, _FORMS))}."
