"""Tiny real models, and a real model server on a unix socket with a small client."""

import asyncio
import json
import pickle
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from sagehen.modelserver.environment import Environment, read_environment
from sagehen.modelserver.program import serve

FEATURES = 4


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection to the server under test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Header names are given with `_` for `-`."""
        self.send(method, path, body, **headers)
        return await self.reply()

    async def invoke(self, body: bytes, content_type: str = "text/csv", accept: str = "") -> Reply:
        headers = {"content_type": content_type} if content_type else {}
        if accept:
            headers["accept"] = accept
        return await self.request("POST", "/invocations", body, **headers)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def reply(self) -> Reply:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:-2])
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Reply(int(head[0].split()[1]), headers, body)


@dataclass
class Running:
    """A server under test."""

    socket: str
    base_dir: Path
    stop: asyncio.Event
    task: "asyncio.Task[int]"
    clients: list[Client]

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_unix_connection(self.socket))
        self.clients.append(client)
        return client


Serving = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def base_dir() -> Iterator[Path]:
    """A container's /opt/ml with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="sh"))
    (folder / "model").mkdir()
    (folder / "models").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def environment(base_dir: Path) -> Callable[..., Environment]:
    def make(adapter: str = "xgboost", **variables: str) -> Environment:
        return read_environment(
            {
                "SAGEMAKER_BASE_DIR": str(base_dir),
                "SAGEHEN_ADAPTER": adapter,
                "SAGEHEN_BIND": f"unix:{base_dir}/s.sock",
                "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
                **variables,
            }
        )

    return make


@pytest.fixture
def serving(base_dir: Path, environment: Callable[..., Environment]) -> Serving:
    """Runs a server for the files in `base_dir/model`; ends it the regular way."""

    @asynccontextmanager
    async def running(adapter: str = "xgboost", **variables: str) -> AsyncIterator[Running]:
        stop, ready = asyncio.Event(), asyncio.Event()
        settings = environment(adapter, **variables)
        task = asyncio.create_task(serve(settings, stop, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), "the model did not load"
        server = Running(settings.bind.path, base_dir, stop, task, [])
        yield server
        for client in server.clients:
            client.writer.close()
            await client.writer.wait_closed()
        stop.set()
        assert await task == 0

    return running


def trained(objective: str = "reg:squarederror", seed: int = 0, **parameters: Any) -> Any:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(200, FEATURES)).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    labels = np.nansum(rows, axis=1)
    if objective.startswith("binary:"):
        labels = (labels > 0).astype(np.float32)
    if objective.startswith("multi:"):
        labels = np.digitize(labels, [-1.0, 1.0])
        parameters["num_class"] = 3
    settings = {"objective": objective, "max_depth": 3, "nthread": 1, "verbosity": 0, **parameters}
    return xgboost.train(settings, xgboost.DMatrix(rows, labels), 10)


@pytest.fixture(scope="session")
def train() -> Callable[..., Any]:
    """Trains a small booster of four features."""
    return trained


@pytest.fixture(scope="session")
def regressor() -> Any:
    return trained()


@pytest.fixture(scope="session")
def rows() -> Any:
    """Ten rows with some cells missing, as float32."""
    random = np.random.default_rng(7)
    cells = random.normal(size=(10, FEATURES)).astype(np.float32)
    cells[3, 1] = cells[5, 0] = np.nan
    return cells


@pytest.fixture(scope="session")
def as_csv() -> Callable[[Any], bytes]:
    """Rows as CSV, a missing cell empty."""

    def convert(rows: Any) -> bytes:
        lines = (
            ",".join("" if np.isnan(cell) else repr(float(cell)) for cell in row) for row in rows
        )
        return "\n".join(lines).encode()

    return convert


@pytest.fixture
def put_model() -> Callable[..., None]:
    """Writes a booster into a model folder in one of its forms."""

    def put(folder: Path, booster: Any, form: str = "ubj", name: str = "xgboost-model") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if form == "pickle":
            (folder / name).write_bytes(pickle.dumps(booster))
        else:
            (folder / name).write_bytes(bytes(booster.save_raw(form)))

    return put


@pytest.fixture
def put_script(base_dir: Path) -> Callable[..., None]:
    """Writes code files, by name without `.py`, into a model's code folder."""

    def put(folder: Path | None = None, **files: str) -> None:
        code = (folder or base_dir / "model") / "code"
        code.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (code / f"{name}.py").write_text(text)

    return put
