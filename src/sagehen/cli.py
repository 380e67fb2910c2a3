"""The `sagehen` command: its verbs, and how they speak to the person at the terminal."""

import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from sagehen import __version__
from sagehen.config import load_settings
from sagehen.credentials import Credentials, load_credentials
from sagehen.errors import Unavailable
from sagehen.home import Home
from sagehen.logs import read_logs
from sagehen.server import RunningServer, client_url, running_server
from sagehen.settings import Settings
from sagehen.status import fetch_status, render_status
from sagehen.terminal import ConfigOption, HomeOption, err, out, plain_errors
from sagehen.verbs.api_keys import key_app
from sagehen.verbs.asynchronous import async_app
from sagehen.verbs.jobs import jobs_app
from sagehen.verbs.templates import apply, delete

__all__ = ["app"]

app = typer.Typer(
    help="SageMaker Inference on your own machines.", no_args_is_help=True, add_completion=False
)
app.add_typer(async_app, name="async")
app.add_typer(jobs_app, name="jobs")
app.add_typer(key_app, name="api-key")
app.command("apply")(apply)
app.command("delete")(delete)

PortOption = Annotated[int | None, typer.Option(help="The port; 0 takes any free one. [9000]")]
HostOption = Annotated[str | None, typer.Option(help="The address to listen on. [127.0.0.1]")]


@app.command()
def up(
    home: HomeOption = None,
    port: PortOption = None,
    host: HostOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a server in the foreground, until Ctrl-C."""
    with plain_errors():
        settings = load_settings(config, home=home, port=port, host=host)
        asyncio.run(_serve(settings))


@app.command()
def env(home: HomeOption = None, config: ConfigOption = None) -> None:
    """Print the exports that point AWS tools at the server: eval "$(sagehen env)"."""
    with plain_errors():
        settings = load_settings(config, home=home)
        place = Home(settings.home)
        credentials = load_credentials(place.credentials)
        if place.address.exists():
            url = place.address.read_text()
        else:
            url = client_url(settings.host, settings.port)
            err.print(
                f"No server runs with the home {place.path} now; start it: sagehen up",
                markup=False,
            )
        for line in _exports(url, credentials, settings.region):
            sys.stdout.write(line + "\n")


@app.command("status")
def show_status(home: HomeOption = None, config: ConfigOption = None) -> None:
    """Show the endpoints, their instances and what they do."""
    with plain_errors():
        place = Home(load_settings(config, home=home).home)
        out.print(render_status(fetch_status(place)))


@app.command("logs")
def show_logs(
    endpoint: Annotated[
        str | None, typer.Argument(help="An endpoint; without one, the server's own logs.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines back.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they grow.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what containers, or the server's processes, have printed."""
    with plain_errors():
        place = Home(load_settings(config, home=home).home)
        for line in read_logs(place, endpoint, lines=lines, follow=follow):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


@app.command()
def demo(
    keep: Annotated[bool, typer.Option(help="Leave the server running at the end.")] = False,
    home: Annotated[Path | None, typer.Option(help="[a temporary one]")] = None,
    port: Annotated[int | None, typer.Option(help="[any free one]")] = None,
) -> None:
    """Tell the story of ten cities' house prices behind one multi-model endpoint."""
    with plain_errors(), _demo_home(home) as place:
        settings = load_settings(home=place, port=port if port is not None else 0)
        sound = asyncio.run(_demonstrate(settings, keep))
    raise typer.Exit(0 if sound else 1)


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"sagehen {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """SageMaker Inference on your own machines."""


async def _serve(settings: Settings) -> None:
    async def stay() -> None:
        async with running_server(settings) as server:
            _announce(server)
            await asyncio.get_running_loop().create_future()

    await _until_signalled(stay())
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

    await _until_signalled(show())
    return verdict


async def _until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or SIGINT or SIGTERM comes, which may be while it still starts."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    working = asyncio.create_task(work)
    ended = asyncio.create_task(ending.wait())
    await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
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
    aws, keys = _export_lines(server.url, server.credentials, settings.region)
    sys.stdout.write(f"  {aws}\n  {keys}\n\n")
    env = shlex.join(["sagehen", "env", "--home", str(server.home.path)])
    if settings.config:
        env += " " + shlex.join(["--config", str(settings.config)])
    out.print(f'or, in another terminal: eval "$({env})". Ctrl-C stops.', markup=False)


def _export_lines(url: str, credentials: Credentials, region: str) -> tuple[str, str]:
    key, secret = shlex.quote(credentials.access_key), shlex.quote(credentials.secret_key)
    return (
        f"export AWS_ENDPOINT_URL={shlex.quote(url)} AWS_REGION={region} "
        f"AWS_DEFAULT_REGION={region}",
        f"export AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={secret}",
    )


def _exports(url: str, credentials: Credentials, region: str) -> tuple[str, ...]:
    # A session token or profile of the user's real account would be sent along, or win.
    return (*_export_lines(url, credentials, region), "unset AWS_SESSION_TOKEN AWS_PROFILE")


@contextmanager
def _demo_home(home: Path | None) -> Iterator[Path]:
    """A home of the demo's own, gone at its end, unless one is given."""
    if home is not None:
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="sagehen-demo-") as made:
        yield Path(made)
