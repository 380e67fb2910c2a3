"""Serves ONNX models with ONNX Runtime on the CPU."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.onnx.session import OnnxError, OnnxSession
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared import named_tensors as tensors
from sagehen.containers.modelserver.adapters.shared.arrays import (
    decode_body,
    encode_accepted_type,
    evaluation_error,
    rows_of,
    run_in_groups,
)
from sagehen.containers.modelserver.adapters.shared.model_file import load_file, one_file
from sagehen.containers.modelserver.adapters.shared.named_tensors import NamedRows
from sagehen.containers.modelserver.contract import BatchModel, ModelAnswer
from sagehen.containers.modelserver.environment import Environment

__all__ = ["OnnxAdapter", "OnnxModel", "adapter"]

Outputs = dict[str, Any]


def adapter(environment: Environment) -> "OnnxAdapter":
    """Raises Unavailable if ONNX Runtime is not installed."""
    require_library("onnxruntime", "ONNX Runtime", "onnx")
    return OnnxAdapter(environment)


class OnnxAdapter(ScriptAdapter):
    """Loads `model.onnx` or the only *.onnx file."""

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(self._load_session, codecs.decode, _predict, encode_accepted)

    def _load_model(self, model_dir: Path) -> BatchModel:
        return OnnxModel(self._load_session(str(model_dir)), self._environment)

    def _load_session(self, model_dir: str) -> OnnxSession:
        path = Path(model_dir, "model.onnx")
        if not path.is_file():
            path = one_file(Path(model_dir), ["*.onnx"], "model.onnx, or one file *.onnx")
        return load_file(lambda path: OnnxSession(path, self._environment.threads), path)


def _predict(data: Any, model: OnnxSession) -> Any:
    rows = tensors.by_column(data, model.inputs, tensors.LISTS, lone=True)
    outputs = list(model.run(rows.arrays, rows.count).values())
    return outputs[0] if len(outputs) == 1 else outputs


class OnnxModel:
    """Batches requests to an ONNX model."""

    def __init__(self, session: OnnxSession, environment: Environment) -> None:
        self._session: OnnxSession | None = session
        self._inputs = session.inputs
        self._default_accept = environment.default_accept or codecs.JSON

    def decode(self, body: bytes, content_type: str) -> NamedRows:
        return decode_body(body, content_type, self._rows, "what the model takes")

    def _rows(self, body: bytes, kind: str) -> NamedRows:
        if kind == codecs.JSON:
            return _from_json(json.loads(body), self._inputs)
        if kind == codecs.CSV and any(tensor.dtype == object for tensor in self._inputs):
            return self._in_columns(_text_cells(body))
        if kind in (codecs.CSV, codecs.NPY):
            return self._in_columns(rows_of(body, kind, "float64"))
        raise codecs.UnsupportedFormat(kind)

    def _in_columns(self, cells: Any) -> NamedRows:
        if len(self._inputs) == 1:
            return tensors.by_column(cells, self._inputs, tensors.LISTS, lone=True)
        widths = [tensor.shape[-1] if tensor.shape else None for tensor in self._inputs]
        if cells.ndim != 2 or None in widths or sum(filter(None, widths)) != cells.shape[1]:
            raise ValueError("the model takes several inputs: send JSON with all of them by name")
        columns, at = {}, 0
        for tensor, width in zip(self._inputs, widths, strict=True):
            part = cells[:, at : at + (width or 0)]
            columns[tensor.name] = part if tensor.dtype == object else part.astype("float64")
            at += width or 0
        return tensors.by_column(columns, self._inputs, tensors.LISTS)

    def predict(self, batch: Sequence[NamedRows]) -> list[tuple[Outputs, str]]:
        outputs = run_in_groups(batch, tensors.kind, self._run_together)
        return [(output, rows.form) for output, rows in zip(outputs, batch, strict=True)]

    def _run_together(self, batch: Sequence[NamedRows]) -> list[Outputs]:
        session = self._session
        if session is None:
            raise RuntimeError("the model was unloaded")
        if len(batch) > 1 and not session.combines_rows:
            return [self._run_together([rows])[0] for rows in batch]
        count = sum(rows.count for rows in batch)
        try:
            outputs = session.run(tensors.concatenate(batch), count)
        except OnnxError as error:
            raise evaluation_error(error) from error
        parts = tensors.split(outputs, batch)
        return parts or [self._run_together([rows])[0] for rows in batch]

    def encode(self, prediction: tuple[Outputs, str], accept: str) -> ModelAnswer:
        forms = (codecs.JSON, codecs.CSV)
        accepted = forms if len(prediction[0]) > 1 else (*forms, codecs.NPY)
        return encode_accepted_type(prediction, accept, self._default_accept, _written, accepted)

    def close(self) -> None:
        self._session = None


def _from_json(body: Any, inputs: Sequence[tensors.Tensor]) -> NamedRows:
    if not isinstance(body, dict):
        return tensors.by_row(body, inputs, tensors.LISTS, lone=True)
    if body.keys() == {tensor.name for tensor in inputs} and len(inputs) > 1:
        return tensors.by_column(body, inputs, tensors.LISTS)
    if "instances" in body:
        return tensors.by_row(body["instances"], inputs, tensors.ROWS, lone=True)
    if "inputs" in body:
        return tensors.by_column(body["inputs"], inputs, tensors.COLUMNS, lone=True)
    return tensors.by_column(body, inputs, tensors.LISTS, lone=True)


def _text_cells(body: bytes) -> Any:
    """Returns a two-dimensional array of text. Raises ValueError."""
    import numpy

    lines = [line for line in csv.reader(io.StringIO(body.decode())) if line]
    if len({len(line) for line in lines}) > 1:
        raise ValueError("its lines have different numbers of values")
    return numpy.array(lines, dtype=object)


def _written(prediction: tuple[Outputs, str], kind: str) -> str | bytes:
    outputs, form = prediction
    if kind == codecs.JSON:
        return codecs.encode(tensors.content(outputs, form), kind)
    if kind == codecs.CSV:
        return _csv(outputs)
    if kind == codecs.NPY and len(outputs) == 1:
        return codecs.encode(next(iter(outputs.values())), kind)
    raise codecs.UnsupportedFormat(kind, of_answer=True)


def _csv(outputs: Mapping[str, Any]) -> str:
    text = io.StringIO()
    columns = [_cells(output) for output in outputs.values()]
    for parts in zip(*columns, strict=True):
        csv.writer(text, lineterminator="\n").writerow(cell for part in parts for cell in part)
    return text.getvalue()


def _cells(output: Any) -> list[list[Any]]:
    if isinstance(output, list):
        return [list(row.values()) if isinstance(row, dict) else [row] for row in output]
    rows: list[list[Any]] = output.reshape(output.shape[0] if output.ndim else 1, -1).tolist()
    return rows
