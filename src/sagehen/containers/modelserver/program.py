"""Runs the model server: listens, loads the model and serves."""

import asyncio
import logging
import os
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvloop

from sagehen.base.concurrency import first_of
from sagehen.base.container_exits import WILL_NOT_LOAD
from sagehen.base.errors import Unavailable
from sagehen.base.python310 import timeout
from sagehen.containers.modelserver.adapters import make_adapter
from sagehen.containers.modelserver.environment import Bind, Environment, set_up_log
from sagehen.containers.modelserver.load_failures import describe_load_failure
from sagehen.containers.modelserver.serving.container_api import (
    MultiModelApi,
    SingleModelApi,
    execution_parameters,
)
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.containers.modelserver.serving.loading import Loader
from sagehen.containers.modelserver.serving.responses import RaisedElsewhere
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.containers.modelserver.workers.preforked import fork_workers
from sagehen.containers.modelserver.workers.process import StartedWorker
from sagehen.containers.modelserver.zombie_reaper import reap_zombies

__all__ = ["run", "serve"]

DRAIN_SECONDS = 28.0
"""Seconds; below the 30 after which the platform kills a container."""

_BACKLOG = 2048
log = logging.getLogger(__name__)


def run(environment: Environment) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit status; WILL_NOT_LOAD or 1 for a failed
    load.
    """
    set_up_log(environment.log_level)
    started = fork_workers(environment)  # not later: the event loop brings threads
    return uvloop.run(_serve_until_signal(environment, started))


async def _serve_until_signal(environment: Environment, started: Sequence[StartedWorker]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reaper = asyncio.create_task(reap_zombies())
    try:
        return await serve(environment, stop, started=started)
    finally:
        reaper.cancel()


async def serve(
    environment: Environment,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    started: Sequence[StartedWorker] = (),
) -> int:
    """Serves until `stop` is set; then finishes requests and returns the exit status.

    Sets `ready` when /ping answers 200. Raises SagehenError if the adapter is unknown, its
    framework is missing or the address is in use.
    """
    loader = Loader(make_adapter(environment), environment, started=started)
    try:
        return await _serve(environment, loader, stop, ready)
    finally:
        await loader.close()


async def _serve(
    environment: Environment, loader: Loader, stop: asyncio.Event, ready: asyncio.Event | None
) -> int:
    if environment.multi_model:
        server, listener = await _listen(environment, MultiModelApi(loader, environment))
    else:
        single = SingleModelApi(execution_parameters(environment))
        server, listener = await _listen(environment, single)
        status = await _load(single, loader, environment, stop)
        if status != 0:
            listener.close()
            return status
    if ready is not None:
        ready.set()
    await stop.wait()
    listener.close()
    with suppress(TimeoutError):
        async with timeout(DRAIN_SECONDS):
            await server.drain()
    server.abort()
    return 0


async def _load(
    single: SingleModelApi, loader: Loader, environment: Environment, stop: asyncio.Event
) -> int:
    load = asyncio.ensure_future(loader.load("model", str(environment.model_dir)))
    await first_of(load, stop.wait())
    if not load.done():
        return 0
    if (error := load.exception()) is not None:
        return _report(error)
    single.loaded = load.result()
    return 0


def _report(error: BaseException) -> int:
    """Logs the reason last, where the platform quotes it, and returns the exit status."""
    failure = error.failure if isinstance(error, RaisedElsewhere) else describe_load_failure(error)
    if failure.lines:
        log.error("The model's code raised.\n%s", failure.lines.rstrip())
    log.critical("The model could not be loaded: %s", failure.summary)
    return WILL_NOT_LOAD if failure.permanent else 1


async def _listen(
    environment: Environment, api: SingleModelApi | MultiModelApi
) -> tuple[ModelServer, asyncio.Server]:
    server = ModelServer(
        api.handle,
        environment.max_body_bytes,
        max_answer_bytes=environment.max_answer_bytes,
        slots=lambda: environment.slots or api.slots,
    )
    loop = asyncio.get_running_loop()
    bind = environment.bind
    try:
        if bind.path:
            _remove_socket(bind.path)
            listener = await loop.create_unix_server(
                partial(FirstBytes, server, Path(bind.path).parent), bind.path, backlog=_BACKLOG
            )
        else:
            listener = await loop.create_server(
                partial(FirstBytes, server, None), bind.host, bind.port, backlog=_BACKLOG
            )
    except OSError as error:
        raise Unavailable(f"Cannot listen on {_address_text(bind)}: {error}") from error
    server.sweep()
    log.info("Serving on %s.", _address_text(bind))
    return server, listener


def _remove_socket(path: str) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def _address_text(bind: Bind) -> str:
    return bind.path or f"{bind.host} port {bind.port}"
