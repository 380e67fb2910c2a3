"""The HTTP API of SageMaker's containers: for one model, and for many (see `SingleModelApi` and
`MultiModelApi`)."""

import asyncio
import bisect
import json
import os
from collections.abc import Coroutine
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest, Refusal
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.serving.batching import BATCH_SLOTS
from sagehen.containers.modelserver.serving.loading import Loader, ServableModel
from sagehen.containers.modelserver.serving.responses import (
    dying,
    error,
    failure,
    healthy,
    json_answer,
    not_loaded,
    still_loading,
)

__all__ = ["MultiModelApi", "SingleModelApi", "execution_parameters"]

PARAMETERS_PATH = "/execution-parameters"
PAYLOAD_MB = 6
MAX_CONCURRENT_TRANSFORMS = 16
"""with PAYLOAD_MB: together they may have 100 MB"""

PAGE_SIZE = 100
MAX_NAME_LENGTH = 1024
GIVE_UP_SECONDS = 30.0
"""Time for a load to end when its model is unloaded; then its worker is ended."""
END_SECONDS = 20.0
"""Time for the worker to end. The sum is below the platform's limit for unloading."""


class _Loading(NamedTuple):
    url: str
    done: asyncio.Future[ModelAnswer]


class MultiModelApi:
    """`/models`: loads, lists, invokes and unloads models by opaque names."""

    def __init__(self, loader: Loader, environment: Environment) -> None:
        self._loader = loader
        self._root = os.path.normpath(environment.models_dir)
        self._models: dict[str, ServableModel] = {}
        self._loading: dict[str, _Loading] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def slots(self) -> int:
        """For all models; each also has its own queue."""
        return BATCH_SLOTS

    def handle(self, request: ModelRequest) -> None:
        path = request.path.partition("?")[0]
        if request.method == "POST" and path.startswith("/models/") and path.endswith("/invoke"):
            self._invoke(unquote(path[8:-7]), request)
        elif path == "/ping":
            request.respond(dying() if self._loader.stuck else healthy(self.slots))
        elif path == "/models":
            self._models_call(request)
        elif path.startswith("/models/"):
            self._model_call(unquote(path[8:]), request)
        else:
            request.respond(_unknown_path(path))

    def _invoke(self, name: str, request: ModelRequest) -> None:
        loaded = self._models.get(name)
        if loaded is None:
            request.respond(not_loaded(name))
        else:
            loaded.runner.submit(request)

    def _models_call(self, request: ModelRequest) -> None:
        if request.method == "GET":
            request.respond(self._page(urlsplit(request.path).query))
        elif request.method == "POST":
            self._spawn(self._load(request), request)
        else:
            request.respond(_wrong_method(request))

    def _model_call(self, name: str, request: ModelRequest) -> None:
        loaded = self._models.get(name)
        if request.method == "DELETE":
            self._spawn(self._unload(name), request)
        elif request.method != "GET":
            request.respond(_wrong_method(request))
        elif loaded is None:
            request.respond(not_loaded(name))
        else:
            request.respond(json_answer(200, _described(loaded)))

    def _page(self, query: str) -> ModelAnswer:
        """Sorts by name; a token encodes the previous page's last name."""
        token = parse_qs(query).get("next_page_token", [""])[0]
        names = sorted(self._models)
        start = bisect.bisect_right(names, _name_of(token)) if token else 0
        page = names[start : start + PAGE_SIZE]
        content: dict[str, object] = {"models": [_described(self._models[name]) for name in page]}
        if start + PAGE_SIZE < len(names):
            content["nextPageToken"] = _token_of(page[-1])
        return json_answer(200, content)

    async def _load(self, request: ModelRequest) -> ModelAnswer:
        name, url = self._parse_load(request)
        if name in self._models:
            return _conflict(name)
        if name in self._loading:
            answer = await asyncio.shield(self._loading[name].done)
            return _conflict(name) if answer.status == 200 else answer
        done: asyncio.Future[ModelAnswer] = asyncio.get_running_loop().create_future()
        self._loading[name] = _Loading(url, done)
        answer = await self._load_once(name, url)
        del self._loading[name]
        done.set_result(answer)
        return answer

    def _parse_load(self, request: ModelRequest) -> tuple[str, str]:
        try:
            content = json.loads(request.body)
            name, url = content["model_name"], content["url"]
            str(name).encode()  # raises for lone surrogates, valid in JSON
        except (ValueError, TypeError, KeyError):
            raise Refusal(400, 'The body must be {"model_name": "…", "url": "…"}.') from None
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or "/" in name:
            raise Refusal(400, "model_name must be a string of 1 to 1024 characters without '/'.")
        if not isinstance(url, str) or not os.path.normpath(url).startswith(self._root + os.sep):
            raise Refusal(400, f"url is {url!r}; it must be a folder under {self._root}.")
        return name, url

    async def _load_once(self, name: str, url: str) -> ModelAnswer:
        try:
            self._models[name] = await self._loader.load(name, url, self._lose)
        except Exception as problem:
            await self._loader.free_memory()
            return failure(problem)
        return json_answer(200, {"status": f'Model "{name}" registered'})

    def _lose(self, name: str) -> None:
        self._models.pop(name, None)

    async def _unload(self, name: str) -> ModelAnswer:
        if name in self._loading and not await self._end_loading(self._loading[name]):
            return error(
                503, "ServiceUnavailableException", f"Model {name} does not come back from loading."
            )
        loaded = self._models.pop(name, None)
        if loaded is None:
            return not_loaded(name)
        await self._loader.unload(loaded)
        return json_answer(200, {"status": f'Model "{name}" unregistered'})

    async def _end_loading(self, loading: _Loading) -> bool:
        """Returns whether loading has ended. Code that never returns would block other loads."""
        done, _ = await asyncio.wait({loading.done}, timeout=GIVE_UP_SECONDS)
        if not done:
            self._loader.abort_load(loading.url)
            done, _ = await asyncio.wait({loading.done}, timeout=END_SECONDS)
        return bool(done)

    def _spawn(self, work: Coroutine[None, None, ModelAnswer], request: ModelRequest) -> None:
        task = asyncio.get_running_loop().create_task(_respond(work, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _respond(work: Coroutine[None, None, ModelAnswer], request: ModelRequest) -> None:
    try:
        request.respond(await work)
    except Exception as problem:
        request.respond(failure(problem))


def _token_of(name: str) -> str:
    """Uses letters and digits only, as clients may not quote the token."""
    return name.encode().hex()


def _name_of(token: str) -> str:
    try:
        return bytes.fromhex(token).decode()
    except ValueError:
        raise Refusal(
            400,
            f"next_page_token {token[:100]!r} is not valid: use a nextPageToken of this server.",
        ) from None


def _described(loaded: ServableModel) -> dict[str, str]:
    return {"modelName": loaded.name, "modelUrl": loaded.url}


def _conflict(name: str) -> ModelAnswer:
    return error(409, "ConflictStatusException", f"Model {name} is already registered.")


def _unknown_path(path: str) -> ModelAnswer:
    return error(
        404,
        "ResourceNotFoundException",
        f"There is no {path} in a multi-model container; invoke /models/NAME/invoke.",
    )


def _wrong_method(request: ModelRequest) -> ModelAnswer:
    return error(
        405, "MethodNotAllowedException", f"{request.path} does not take {request.method}."
    )


class SingleModelApi:
    """`/ping` and `/invocations` of one model, once it is loaded, and `/execution-parameters`.

    `parameters`: for batch transform; None answers 404, which stands for SageMaker's defaults.
    """

    def __init__(self, parameters: dict[str, object] | None = None) -> None:
        self.loaded: ServableModel | None = None
        self._parameters = parameters

    @property
    def slots(self) -> int:
        """0 while the model is being loaded."""
        return 0 if self.loaded is None else self.loaded.runner.slots

    def handle(self, request: ModelRequest) -> None:
        path = request.path.partition("?")[0]
        method = _METHODS.get(path)
        if path == PARAMETERS_PATH and request.method == "GET" and self._parameters is not None:
            request.respond(json_answer(200, self._parameters))
        elif method is None:
            request.respond(error(404, "ResourceNotFoundException", f"There is no {path} here."))
        elif request.method != method:
            request.respond(error(405, "MethodNotAllowedException", f"{path} takes {method} only."))
        elif self.loaded is None:
            request.respond(still_loading())
        elif path == "/ping":
            stuck = self.loaded.runner.stuck
            request.respond(dying() if stuck else healthy(self.slots))
        else:
            self.loaded.runner.submit(request)


def execution_parameters(environment: Environment) -> dict[str, object] | None:
    """Returns what AWS's container of the adapter says to batch transform, if it says anything."""
    if environment.adapter != "xgboost":
        return None
    return {
        "MaxConcurrentTransforms": min(environment.workers, MAX_CONCURRENT_TRANSFORMS),
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": PAYLOAD_MB,
    }


_METHODS = {"/ping": "GET", "/invocations": "POST"}
