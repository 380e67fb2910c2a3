"""What `sagehen up` and `sagehen demo` do: a server in the foreground, until it is told to end."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from rich.markup import escape

from sagehen import __version__
from sagehen.errors import Unavailable
from sagehen.server import RunningServer, running_server
from sagehen.settings import Settings
from sagehen.terminal import out
from sagehen.verbs.exports import export_lines

__all__ = ["run_demo", "run_server"]


def run_server(settings: Settings) -> None:
    """Run a server until SIGINT or SIGTERM."""
    asyncio.run(_serve(settings))


def run_demo(settings: Settings, keep: bool) -> bool:
    """Run one for the demo, and after it where it is to be kept; whether all was sound."""
    return asyncio.run(_demonstrate(settings, keep))


async def _serve(settings: Settings) -> None:
    async def stay() -> None:
        async with running_server(settings) as server:
            _announce(server)
            await asyncio.get_running_loop().create_future()

    await _until_told_to_end(stay())
    out.print("Stopped.")


async def _demonstrate(settings: Settings, keep: bool) -> bool:
    try:
        from sagehen.demo import run  # brings in the ML libraries, which no other verb needs
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"The demo needs {error.name}; install what it needs with: pip install 'sagehen[demo]'"
        ) from error

    verdict = False

    async def show() -> None:
        nonlocal verdict
        async with running_server(settings) as server:
            keys = server.credentials
            verdict = await asyncio.to_thread(
                run, server.url, keys.access_key, keys.secret_key, settings.region, out
            )
            if keep:
                _announce(server)
                await asyncio.get_running_loop().create_future()

    await _until_told_to_end(show())
    return verdict


async def _until_told_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or SIGINT or SIGTERM comes, which may be while it still starts."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    working = asyncio.create_task(work)
    told = asyncio.create_task(ending.wait())
    await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not working.done():
        out.print("Stopping: what was accepted is finished first. Once more stops at once.")
        for number in (signal.SIGINT, signal.SIGTERM):
            # Nothing of ours outlives this process, and whatever was answered is on disk.
            loop.add_signal_handler(number, os._exit, 130)
        working.cancel()
    with suppress(asyncio.CancelledError):
        await working


def _announce(server: RunningServer) -> None:
    settings = server.settings
    out.print(
        f"\nSagehen {__version__} is ready at [bold]{server.url}[/bold] "
        f"(account {settings.account_id}, region {settings.region}).\n"
        f"Everything it keeps is in {escape(str(server.home.path))}.\n\n"
        "Point boto3, the AWS CLI or the SageMaker SDK at it:\n"
    )
    aws, keys = export_lines(server.url, server.credentials, settings.region)
    # What is no terminal is a journal or a log, where the secret would stay.
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
