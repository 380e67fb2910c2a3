"""Runs the TensorFlow Serving container's scripts: `handler`, or `input_handler` and
`output_handler`.

A `handler` posts to `context.rest_uri`, served by this process.
"""

import io
import json
import logging
import re
import sys
import threading
import weakref
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from sagehen.containers.modelserver.adapters.script.handlers import Context, bytes_of
from sagehen.containers.modelserver.adapters.script.script import ScriptError
from sagehen.containers.modelserver.adapters.shared import named_tensors as tensors
from sagehen.containers.modelserver.adapters.shared.codecs import JSON
from sagehen.containers.modelserver.adapters.tensorflow.bundles import Bundle
from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.environment import Environment

__all__ = [
    "HandlerResponse",
    "RestModel",
    "RestServer",
    "ScriptServing",
    "TfsContext",
    "add_libraries",
    "read_attributes",
    "resource",
    "transform_of",
]

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds until shutdown is noticed."""

_RESOURCE = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(?::([a-z]+))?")


class RestModel(Protocol):
    """The models behind the REST server."""

    def answer_rest(self, body: bytes, name: str, version: str, method: str) -> ModelAnswer:
        """Answers TensorFlow Serving's JSON."""

    def versions(self, name: str, version: str) -> list[int]:
        """Returns an empty list for an unknown model."""


def resource(name: str, version: str, method: str) -> str:
    return f"/v1/models/{name}{f'/versions/{version}' if version else ''}:{method}"


class RestServer:
    """Listens on the loopback interface until closed."""

    def __init__(self, model: RestModel) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True, name="rest"
        )
        serve.start()

    def close(self) -> None:
        """Uses a thread: shutdown waits for polling."""
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(model: RestModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            target = _RESOURCE.fullmatch(self.path)
            if target is None or not target[3]:
                self._answer(400, _error(f"Malformed request: POST {self.path}"))
                return
            answer = model.answer_rest(body, target[1], target[2] or "", target[3])
            self._answer(answer.status, answer.body)

        def do_GET(self) -> None:
            target = _RESOURCE.fullmatch(self.path)
            versions = model.versions(target[1], target[2] or "") if target else []
            if not versions:
                self._answer(404, _error(f"Could not find any versions of model {self.path}"))
                return
            fine = {"error_code": "OK", "error_message": ""}
            states = [{"version": str(n), "state": "AVAILABLE", "status": fine} for n in versions]
            self._answer(200, json.dumps({"model_version_status": states}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_ATTRIBUTE = re.compile(r"(tfs-[a-z\-]+)=([^,]+)")


class TfsContext(NamedTuple):
    """A handler's context, as in SageMaker's container."""

    model_name: str | None
    model_version: str | None
    method: str | None
    rest_uri: str
    grpc_port: str | None
    """No gRPC; `rest_uri` answers."""
    channel: None
    custom_attributes: str | None
    request_content_type: str
    accept_header: str
    content_length: int


class HandlerResponse:
    """The part of `requests.Response` that an `output_handler` uses."""

    def __init__(self, answer: ModelAnswer) -> None:
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
    """Mirrors tensorflow.TensorFlowModel of the container."""

    default_name: str

    def choose(self, name: str, version: str) -> Bundle:
        """Raises Refusal."""


class ScriptServing:
    """Serves a script directly or over REST."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._starting = threading.Lock()
        self._rest: RestServer | None = None

    def predict(self, data: Any) -> Any:
        """Calls the default signature. Raises SignatureError, or ValueError for bad data."""
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

    def post(self, context: TfsContext, body: Any) -> HandlerResponse:
        """Acts as a POST to `asked.rest_uri`, without HTTP."""
        data = json.dumps(body) if isinstance(body, dict | list) else body
        name, version = context.model_name or self._model.default_name, context.model_version or ""
        answer = self._model.answer_rest(bytes_of(data), name, version, context.method or "predict")
        return HandlerResponse(answer)


def read_attributes(custom: str) -> dict[str, str]:
    """Reads tfs-model-name, tfs-model-version and tfs-method."""
    return dict(_ATTRIBUTE.findall(custom))


def add_libraries(code: Path, environment: Environment) -> None:
    """Makes `code/lib` importable, for this model only."""
    folder = code / "lib"
    if folder.is_dir() and not environment.multi_model:
        sys.path.append(str(folder))


def transform_of(module: ModuleType) -> Callable[..., Any] | None:
    """Raises ScriptError if the script has only one of the two handlers."""
    handler = getattr(module, "handler", None)
    before = getattr(module, "input_handler", None)
    after = getattr(module, "output_handler", None)
    if handler is not None:
        return _with_error_answers(lambda model, body, context: handler(body, context))
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise ScriptError(
            "Handlers are not implemented correctly in user script: input_handler and "
            "output_handler go together, or there is a handler."
        )
    return _with_error_answers(
        lambda model, body, context: after(model.post(context, before(body, context)), context)
    )


def _with_error_answers(
    answer: Callable[[ScriptServing, io.BytesIO, TfsContext], Any],
) -> Callable[..., Any]:
    """Answers exceptions as the container does."""

    def transform(
        model: ScriptServing, data: bytes | str, content_type: str, accept: str, context: Context
    ) -> Any:
        body = bytes_of(data)
        tfs_context = model.context(context, content_type or JSON, accept, len(body))
        try:
            return answer(model, io.BytesIO(body), tfs_context)
        except MemoryError:
            raise
        except Exception as error:
            log.exception("exception handling request: %s", error)
            context.set_response_status(500)
            return json.dumps({"error": str(error)}), JSON

    return transform
