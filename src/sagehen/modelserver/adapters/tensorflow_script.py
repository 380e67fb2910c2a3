"""The TensorFlow Serving container's scripts: a `handler`, or an `input_` and `output_handler`."""

import io
import json
import logging
import re
import sys
import threading
import weakref
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from sagehen.modelserver.adapters import named_tensors as tensors
from sagehen.modelserver.adapters.codecs import JSON
from sagehen.modelserver.adapters.context import Context
from sagehen.modelserver.adapters.pieces import bytes_of
from sagehen.modelserver.adapters.script import ScriptError
from sagehen.modelserver.adapters.tensorflow_bundles import Bundle
from sagehen.modelserver.adapters.tensorflow_rest import RestModel, RestServer, resource
from sagehen.modelserver.contract import Answer
from sagehen.modelserver.environment import Environment

__all__ = [
    "Response",
    "Served",
    "TfsContext",
    "add_libraries",
    "read_attributes",
    "transform_of",
]

_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_ATTRIBUTE = re.compile(r"(tfs-[a-z\-]+)=([^,]+)")

log = logging.getLogger(__name__)


class TfsContext(NamedTuple):
    """What a handler is told of its request, as in SageMaker's container."""

    model_name: str | None
    model_version: str | None
    method: str | None
    rest_uri: str
    grpc_port: str | None
    """None: there is no gRPC here, but `rest_uri` answers."""
    channel: None
    custom_attributes: str | None
    request_content_type: str
    accept_header: str
    content_length: int


class Response:
    """What `output_handler` gets: of `requests.Response` what its scripts use."""

    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.content = answer.body
        self.headers = {"Content-Type": answer.content_type}
        self.reason = HTTPStatus(answer.status).phrase
        self.encoding = "utf-8"

    @property
    def ok(self) -> bool:
        return self.status_code < 400

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise OSError(f"{self.status_code} {self.reason}: {self.text}")


class ServedModel(RestModel, Protocol):
    """The models of the archive, as tensorflow.TensorFlowModel has them."""

    default_name: str

    def choose(self, name: str, version: str) -> Bundle:
        """Raises Refusal if there is none."""


class Served:
    """The archive's models for a script: in the process, and at an address of their own."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._starting = threading.Lock()
        self._rest: RestServer | None = None

    def predict(self, data: Any) -> Any:
        """By the default signature: of its only input an array, or arrays by name.

        Raises:
            ValueError: the data does not fit.
            SignatureError: TensorFlow refuses it.
        """
        signature = self._model.choose("", "").signatures["serving_default"]
        rows = tensors.by_column(data, signature.inputs, tensors.LISTS, lone=True)
        outputs = signature.run(rows.arrays)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def context(self, context: Context, content_type: str, accept: str, size: int) -> TfsContext:
        custom = context.get_request_header(0, _CUSTOM_ATTRIBUTES)
        attributes = read_attributes(custom or "")
        name, version = attributes.get("tfs-model-name"), attributes.get("tfs-model-version")
        method = attributes.get("tfs-method")
        path = resource(name or self._model.default_name, version or "", method or "predict")
        return TfsContext(
            name,
            version,
            method,
            self._address() + path,
            None,
            None,
            custom,
            content_type,
            accept,
            size,
        )

    def _address(self) -> str:
        with self._starting:
            if self._rest is None:
                self._rest = RestServer(self._model)
                weakref.finalize(self, self._rest.close)
            return self._rest.address

    def post(self, asked: TfsContext, body: Any) -> Response:
        """What posting the body to `asked.rest_uri` gives, without the way there."""
        data = json.dumps(body) if isinstance(body, dict | list) else body
        name, version = asked.model_name or self._model.default_name, asked.model_version or ""
        answer = self._model.ask(bytes_of(data), name, version, asked.method or "predict")
        return Response(answer)


def read_attributes(custom: str) -> dict[str, str]:
    """tfs-model-name, tfs-model-version and tfs-method, of those that are there."""
    return dict(_ATTRIBUTE.findall(custom))


def add_libraries(code: Path, environment: Environment) -> None:
    """Make the packages in `code/lib` importable, where no other model could find them too."""
    folder = code / "lib"
    if folder.is_dir() and not environment.multi_model:
        sys.path.append(str(folder))


def transform_of(module: ModuleType) -> Callable[..., Any] | None:
    """What stands for the script's `transform_fn`, if it has the container's handlers.

    Raises ScriptError if it has one of two that belong together.
    """
    handler = getattr(module, "handler", None)
    before = getattr(module, "input_handler", None)
    after = getattr(module, "output_handler", None)
    if handler is not None:
        return _reporting(lambda model, body, asked: handler(body, asked))
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise ScriptError(
            "Handlers are not implemented correctly in user script: input_handler and "
            "output_handler go together, or there is a handler."
        )
    return _reporting(
        lambda model, body, asked: after(model.post(asked, before(body, asked)), asked)
    )


def _reporting(answer: Callable[[Served, io.BytesIO, TfsContext], Any]) -> Callable[..., Any]:
    """`answer` as a `transform_fn`; an exception is answered as the container does."""

    def transform(
        model: Served, data: bytes | str, content_type: str, accept: str, context: Context
    ) -> Any:
        body = bytes_of(data)
        asked = model.context(context, content_type or JSON, accept, len(body))
        try:
            return answer(model, io.BytesIO(body), asked)
        except MemoryError:
            raise
        except Exception as problem:
            log.exception("exception handling request: %s", problem)
            context.set_response_status(500)
            return json.dumps({"error": str(problem)}), JSON

    return transform
