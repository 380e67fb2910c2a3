"""Serves TensorFlow models as SageMaker's TensorFlow Serving container does."""

import importlib.util
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.base.extras import missing_library
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import (
    Scripted,
    find_script,
    load_script,
)
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared import named_tensors as tensors
from sagehen.containers.modelserver.adapters.shared.arrays import in_groups
from sagehen.containers.modelserver.adapters.shared.codecs import media_type
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.adapters.shared.named_tensors import NamedRows
from sagehen.containers.modelserver.adapters.tensorflow.bundles import (
    Bundle,
    ModelSignature,
    SignatureError,
    choose,
    import_tensorflow,
    load_bundles,
)
from sagehen.containers.modelserver.adapters.tensorflow.rest_json import (
    JSON_LINES,
    read_examples,
    request_content,
    results,
    text_of,
)
from sagehen.containers.modelserver.adapters.tensorflow.script import (
    Served,
    add_libraries,
    read_attributes,
    transform_of,
)
from sagehen.containers.modelserver.contract import (
    BatchModel,
    CallModel,
    ModelAnswer,
    ModelRequest,
    Refusal,
)
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.serving.responses import by_model, json_answer

__all__ = ["TensorFlowAdapter", "TensorFlowModel", "adapter"]

METHODS = ("predict", "classify", "regress")

_CUSTOM_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"

Outputs = dict[str, Any]


def adapter(environment: Environment) -> "TensorFlowAdapter":
    """Raises Unavailable if TensorFlow is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        raise missing_library("TensorFlow", "tensorflow")
    return TensorFlowAdapter(environment)


class TensorFlowAdapter(Scripted):
    """Loads SavedModels in version folders, or a .keras file."""

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        script = find_script(model_dir, self._environment)
        if script is not None:
            import_tensorflow()  # before the script imports it
            add_libraries(script.folder, self._environment)
            handlers = Handlers(self._serve, codecs.decode, _predict, encode_accepted, transform_of)
            return load_script(script, model_dir, handlers, self._environment)
        return self._load(str(model_dir))

    def _serve(self, model_dir: str) -> Served:
        return Served(self._load(model_dir))

    def _load(self, model_dir: str) -> "TensorFlowModel":
        bundles = load_bundles(Path(model_dir), self._environment.tensorflow)
        return TensorFlowModel(bundles, self._environment)


def _predict(data: Any, model: Served) -> Any:
    return model.predict(data)


class TfsRefusal(Refusal):
    """Answers in TensorFlow Serving's format."""

    @property
    def answer(self) -> ModelAnswer:
        return by_model(json_answer(self.status, {"error": str(self)}))


@dataclass(slots=True)
class TensorFlowRequest:
    """A decoded request."""

    count: int
    rows: NamedRows
    signature: ModelSignature
    method: str


class TensorFlowModel:
    """Batches requests to the models of an archive."""

    def __init__(self, bundles: Sequence[Bundle], environment: Environment) -> None:
        self._bundles = list(bundles)
        names = [bundle.name for bundle in bundles]
        self.default_name = environment.tensorflow.default_model or names[0]
        if self.default_name not in names:
            raise ModelFileError(
                f"SAGEMAKER_TFS_DEFAULT_MODEL_NAME is {self.default_name}; "
                f"the model's archive has {', '.join(sorted(set(names)))}."
            )

    def decode_request(self, request: ModelRequest) -> TensorFlowRequest:
        """Reads the custom attributes tfs-model-name, tfs-model-version and tfs-method."""
        attributes = read_attributes(request.header(_CUSTOM_ATTRIBUTES))
        bundle = self.choose(
            attributes.get("tfs-model-name", ""), attributes.get("tfs-model-version", "")
        )
        method = attributes.get("tfs-method", "predict")
        return self._asked(request.body, request.header(b"content-type"), bundle, method)

    def decode(self, body: bytes, content_type: str) -> TensorFlowRequest:
        return self._asked(body, content_type, self.choose("", ""), "predict")

    def choose(self, name: str, version: str) -> Bundle:
        """Raises Refusal."""
        bundle = choose(self._bundles, name or self.default_name, version)
        if bundle is None:
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise TfsRefusal(404, f"Servable not found for request: {which}")
        return bundle

    def _asked(
        self, body: bytes, content_type: str, bundle: Bundle, method: str
    ) -> TensorFlowRequest:
        try:
            content = request_content(body, media_type(content_type))
        except codecs.UnsupportedFormat as problem:
            raise TfsRefusal(415, f"Unsupported Media Type: {problem.content_type}") from problem
        except (ValueError, RecursionError) as problem:
            kind = "CSV" if media_type(content_type) == codecs.CSV else "JSON"
            raise TfsRefusal(400, f"{kind} Parse error: {problem}") from problem
        return self._of(content, bundle, method)

    def versions(self, name: str, version: str) -> list[int]:
        return [
            bundle.version
            for bundle in self._bundles
            if bundle.name == name and version in ("", str(bundle.version))
        ]

    def ask(self, body: bytes, name: str, version: str, method: str) -> ModelAnswer:
        """Answers a JSON body like TensorFlow Serving's REST API."""
        try:
            bundle = self.choose(name, version)
            content = json.loads(body)
            if not isinstance(content, dict):
                raise ValueError("the body must be an object")
            (outcome,) = self.predict([self._of(content, bundle, method)])
        except Refusal as refusal:
            return refusal.answer
        except ValueError as problem:
            return json_answer(400, {"error": f"JSON Parse error: {problem}"})
        return self.encode(outcome, "")

    def _of(self, content: dict[str, Any], bundle: Bundle, method: str) -> TensorFlowRequest:
        name = content.get("signature_name") or "serving_default"
        signature = bundle.signatures.get(name)
        if signature is None:
            raise TfsRefusal(400, f'Serving signature name: "{name}" not found in signature def')
        if method not in METHODS:
            raise TfsRefusal(
                400, f"Malformed request: tfs-method is {method}; there are {', '.join(METHODS)}"
            )
        try:
            rows = _rows(content, signature, method)
        except ValueError as problem:
            raise TfsRefusal(400, f"Failed to process the request: {problem}") from problem
        return TensorFlowRequest(rows.count, rows, signature, method)

    def predict(
        self, batch: Sequence[TensorFlowRequest]
    ) -> list[tuple[Outputs, TensorFlowRequest]]:
        outputs = in_groups(batch, _kind, self._together)
        return list(zip(outputs, batch, strict=True))

    def _together(self, batch: Sequence[TensorFlowRequest]) -> list[Outputs]:
        """Runs requests of one signature and row shape."""
        signature = batch[0].signature
        if len(batch) > 1 and not signature.takes_rows:
            return [self._together([asked])[0] for asked in batch]
        rows = [asked.rows for asked in batch]
        try:
            outputs = signature.run(tensors.together(rows))
        except SignatureError as problem:
            raise TfsRefusal(400, str(problem)) from problem
        return tensors.apart(outputs, rows) or [self._together([asked])[0] for asked in batch]

    def encode(self, prediction: tuple[Outputs, TensorFlowRequest], accept: str) -> ModelAnswer:
        """Writes JSON, TensorFlow Serving's only format."""
        outputs, asked = prediction
        try:
            content = _content(outputs, asked)
        except ValueError as problem:
            raise TfsRefusal(400, str(problem)) from problem
        kinds = [media_type(each) for each in accept.split(",")]
        kind = kinds[0] if {codecs.JSON, JSON_LINES} & {*kinds} else codecs.JSON
        return ModelAnswer(200, text_of(content).encode(), kind)

    def close(self) -> None:
        self._bundles.clear()


def _content(outputs: Outputs, asked: TensorFlowRequest) -> Any:
    """Raises ValueError."""
    if asked.method == "predict":
        return tensors.content(outputs, asked.rows.form)
    return {"results": results(outputs, asked.method)}


def _kind(asked: TensorFlowRequest) -> Hashable:
    return id(asked.signature), asked.method, tensors.kind(asked.rows)


def _rows(content: dict[str, Any], signature: ModelSignature, method: str) -> NamedRows:
    """Raises ValueError."""
    if method != "predict":
        return read_examples(content, signature.inputs)
    if "instances" in content and "inputs" in content:
        raise ValueError("it has both 'instances' and 'inputs'")
    if "instances" in content:
        return tensors.by_row(content["instances"], signature.inputs, tensors.ROWS)
    if "inputs" in content:
        return tensors.by_column(content["inputs"], signature.inputs, tensors.COLUMNS)
    raise ValueError("Missing 'inputs' or 'instances' key")
