"""An agent behind its socket, in the process of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

__all__ = ["served"]


@asynccontextmanager
async def served(app: Any, path: Path) -> AsyncIterator[None]:
    """Serves an application on a Unix socket."""
    config = uvicorn.Config(app, uds=str(path), lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    yield
    server.should_exit = True
    await serving
