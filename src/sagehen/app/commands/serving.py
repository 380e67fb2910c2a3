"""Runs `sagehen up` and `sagehen demo` in the foreground."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rich.markup import escape

from sagehen import __version__
from sagehen.app.commands.exports import export_lines
from sagehen.app.server import RunningServer, home_vanished, running_server
from sagehen.base.clock import SYSTEM
from sagehen.base.concurrency import first_of
from sagehen.base.errors import HomeError, SettingError
from sagehen.base.extras import missing_library
from sagehen.base.service_manager import notify
from sagehen.base.settings import Settings
from sagehen.base.terminal import err, out

__all__ = ["run_demo", "run_server"]


def run_server(load: Callable[[], Settings]) -> None:
    """`load` reads the settings, now and when they are to be read again."""
    settings = load()
    _report_start(settings)
    asyncio.run(_serve(settings, load))


def run_demo(settings: Settings, keep: bool) -> bool:
    """Runs the demo on its own server; returns whether all checks passed."""
    _report_start(settings)
    return asyncio.run(_demonstrate(settings, keep))


async def _serve(settings: Settings, load: Callable[[], Settings]) -> None:
    async def serve() -> None:
        async with running_server(settings, report=_report) as server:
            _announce(server)
            on_reload = partial(_reload, server, load)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, on_reload)
            notify(f"READY=1\nSTATUS=Serving at {server.url}")
            await home_vanished(server.home, SYSTEM)
            _report(f"The home {server.home.path} is gone. Stopping.")
            raise HomeError(
                f"The home {server.home.path} was deleted or replaced while the server ran. "
                "Nothing that was done since then is kept."
            )

    await _until_signal(serve())
    out.print("Stopped.")


def _reload(server: RunningServer, load: Callable[[], Settings]) -> None:
    try:
        taken, rest = server.reload(load())
    except SettingError as error:
        _report(f"The settings stay as they were: {error}")
        return
    if rest:
        _report(f"Changed, but only when the server starts again: {', '.join(rest)}.")
    _report(f"Take effect now: {', '.join(taken)}." if taken else "Nothing to take effect now.")
    notify(f"STATUS=Serving at {server.url}")


async def _demonstrate(settings: Settings, keep: bool) -> bool:
    try:
        from sagehen.app.demo import run
    except ModuleNotFoundError as error:
        raise missing_library(str(error.name), "demo") from error

    passed = False

    async def show() -> None:
        nonlocal passed
        async with running_server(settings, report=_report) as server:
            keys = server.credentials
            passed = await asyncio.to_thread(
                run, server.url, keys.access_key, keys.secret_key, settings.region, out
            )
            if keep:
                _announce(server)
                await asyncio.get_running_loop().create_future()

    await _until_signal(show())
    return passed


def _report_start(settings: Settings) -> None:
    _report(f"Starting Sagehen {__version__} with the home {settings.home} ...")


def _report(step: str) -> None:
    notify(f"STATUS={step}")
    out.print(step, markup=False)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` until it ends or SIGINT or SIGTERM comes, also during the start."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    working = asyncio.create_task(work)
    await first_of(working, ending.wait())
    if not working.done():
        notify("STOPPING=1")
        out.print(
            "Stopping: requests that were accepted are finished first. "
            "Press Ctrl-C again to stop immediately."
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            # Children end with us, and everything answered is on disk.
            loop.add_signal_handler(number, _end_at_once)
        working.cancel()
    with suppress(asyncio.CancelledError):
        await working


def _end_at_once() -> None:
    try:
        out.print("Stopped at once: requests that were being answered are cut off.")
        sys.stdout.flush()
    finally:  # also where the terminal is gone, or the disk with the log is full
        os._exit(130)


def _announce(server: RunningServer) -> None:
    settings = server.settings
    out.print(
        f"\nSagehen {__version__} is ready at [bold]{server.url}[/bold] "
        f"(account {settings.account_id}, region {settings.region}).\n"
        f"Everything it keeps is in {escape(str(server.home.path))}.\n\n"
        "Point boto3, the AWS CLI or the SageMaker SDK at it:\n"
    )
    aws, keys = export_lines(server.url, server.credentials, settings.region)
    # A journal or log would keep the secret.
    lines = (aws, keys) if sys.stdout.isatty() else (aws,)
    sys.stdout.write("".join(f"  {line}\n" for line in lines) + "\n")
    env = shlex.join(["sagehen", "env", "--home", str(server.home.path)])
    if settings.config:
        env += " " + shlex.join(["--config", str(settings.config)])
    hint = (
        "or, in another terminal"
        if sys.stdout.isatty()
        else "and, for the keys, in another terminal"
    )
    out.print(f'{hint}: eval "$({env})". Ctrl-C stops.', markup=False)
    if server.reachable:
        err.print("\n" + exposure_warning(server.reachable, settings), markup=False)


def exposure_warning(reachable: Sequence[str], settings: Settings) -> str:
    unsigned = ["/_sagehen/health"]
    if settings.open_metrics:
        unsigned.append("/_sagehen/metrics (open_metrics)")
    service = settings.inference_service
    if service.s3_bucket and not service.require_api_key:
        unsigned.append(f"/{service.stage}/inference (require_api_key is off)")
    return (
        f"Other machines reach this server at {', '.join(reachable)}.\n"
        "WARNING: It speaks plain HTTP: whoever can listen in reads requests, answers and objects. "
        "Put a proxy with TLS before it, or keep the port to a network that you trust.\n"
        "Every request must be signed with the keys, or carry the home's token, except "
        f"{', '.join(unsigned)} and the links in notifications."
    )
