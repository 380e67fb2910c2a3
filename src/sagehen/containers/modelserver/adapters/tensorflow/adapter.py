"""Serves TensorFlow models as SageMaker's TensorFlow Serving container does."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared import named_tensors as tensors
from sagehen.containers.modelserver.adapters.shared.arrays import run_in_groups
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
    method_results,
    read_examples,
    request_content,
    to_json,
)
from sagehen.containers.modelserver.adapters.tensorflow.script import (
    ScriptServing,
    add_libraries,
    read_attributes,
    transform_of,
)
from sagehen.containers.modelserver.contract import (
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
    require_library("tensorflow", "TensorFlow", "tensorflow")
    return TensorFlowAdapter(environment)


class TensorFlowAdapter(ScriptAdapter):
    """Loads SavedModels in version folders, or a .keras file."""

    def _handlers(self, script: UserScript) -> Handlers:
        import_tensorflow()  # before the script imports it
        add_libraries(script.folder, self._environment)
        return Handlers(self._serve, codecs.decode, _predict, encode_accepted, transform_of)

    def _serve(self, model_dir: str) -> ScriptServing:
        return ScriptServing(self._load_model(Path(model_dir)))

    def _load_model(self, model_dir: Path) -> "TensorFlowModel":
        bundles = load_bundles(model_dir, self._environment.tensorflow)
        return TensorFlowModel(bundles, self._environment)


def _predict(data: Any, model: ScriptServing) -> Any:
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
        return self._read_request(request.body, request.header(b"content-type"), bundle, method)

    def decode(self, body: bytes, content_type: str) -> TensorFlowRequest:
        return self._read_request(body, content_type, self.choose("", ""), "predict")

    def choose(self, name: str, version: str) -> Bundle:
        """Raises Refusal."""
        bundle = choose(self._bundles, name or self.default_name, version)
        if bundle is None:
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise TfsRefusal(404, f"Servable not found for request: {which}")
        return bundle

    def _read_request(
        self, body: bytes, content_type: str, bundle: Bundle, method: str
    ) -> TensorFlowRequest:
        try:
            content = request_content(body, media_type(content_type))
        except codecs.UnsupportedFormat as error:
            raise TfsRefusal(415, f"Unsupported Media Type: {error.content_type}") from error
        except (ValueError, RecursionError) as error:
            kind = "CSV" if media_type(content_type) == codecs.CSV else "JSON"
            raise TfsRefusal(400, f"{kind} Parse error: {error}") from error
        return self._to_request(content, bundle, method)

    def versions(self, name: str, version: str) -> list[int]:
        return [
            bundle.version
            for bundle in self._bundles
            if bundle.name == name and version in ("", str(bundle.version))
        ]

    def answer_rest(self, body: bytes, name: str, version: str, method: str) -> ModelAnswer:
        """Answers a JSON body like TensorFlow Serving's REST API."""
        try:
            bundle = self.choose(name, version)
            content = json.loads(body)
            if not isinstance(content, dict):
                raise ValueError("the body must be an object")
            (outcome,) = self.predict([self._to_request(content, bundle, method)])
        except Refusal as refusal:
            return refusal.answer
        except ValueError as error:
            return json_answer(400, {"error": f"JSON Parse error: {error}"})
        return self.encode(outcome, "")

    def _to_request(
        self, content: dict[str, Any], bundle: Bundle, method: str
    ) -> TensorFlowRequest:
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
        except ValueError as error:
            raise TfsRefusal(400, f"Failed to process the request: {error}") from error
        return TensorFlowRequest(rows.count, rows, signature, method)

    def predict(
        self, batch: Sequence[TensorFlowRequest]
    ) -> list[tuple[Outputs, TensorFlowRequest]]:
        outputs = run_in_groups(batch, _kind, self._run_together)
        return list(zip(outputs, batch, strict=True))

    def _run_together(self, batch: Sequence[TensorFlowRequest]) -> list[Outputs]:
        """Runs requests of one signature and row shape."""
        signature = batch[0].signature
        if len(batch) > 1 and not signature.combines_rows:
            return [self._run_together([request])[0] for request in batch]
        rows = [request.rows for request in batch]
        try:
            outputs = signature.run(tensors.concatenate(rows))
        except SignatureError as error:
            raise TfsRefusal(400, str(error)) from error
        return tensors.split(outputs, rows) or [
            self._run_together([request])[0] for request in batch
        ]

    def encode(self, prediction: tuple[Outputs, TensorFlowRequest], accept: str) -> ModelAnswer:
        """Writes JSON, TensorFlow Serving's only format."""
        outputs, request = prediction
        try:
            content = _content(outputs, request)
        except ValueError as error:
            raise TfsRefusal(400, str(error)) from error
        kinds = [media_type(part) for part in accept.split(",")]
        kind = kinds[0] if {codecs.JSON, JSON_LINES} & {*kinds} else codecs.JSON
        return ModelAnswer(200, to_json(content).encode(), kind)

    def close(self) -> None:
        self._bundles.clear()


def _content(outputs: Outputs, request: TensorFlowRequest) -> Any:
    """Raises ValueError."""
    if request.method == "predict":
        return tensors.content(outputs, request.rows.form)
    return {"results": method_results(outputs, request.method)}


def _kind(request: TensorFlowRequest) -> Hashable:
    return id(request.signature), request.method, tensors.kind(request.rows)


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
