"""The `sagehen` command: its verbs, and how they speak to the person at the terminal."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sagehen import __version__
from sagehen.address import client_url
from sagehen.config import load_settings
from sagehen.credentials import Credentials, load_credentials
from sagehen.home import Home
from sagehen.logs import read_logs
from sagehen.status import fetch_status, render_status
from sagehen.terminal import ConfigOption, HomeOption, err, out, plain_errors
from sagehen.verbs.api_keys import key_app
from sagehen.verbs.asynchronous import async_app
from sagehen.verbs.backups import adopt, backup, restore
from sagehen.verbs.exports import export_lines
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
app.command("backup")(backup)
app.command("restore")(restore)
app.command("adopt")(adopt)

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
        from sagehen.verbs.serving import run_server  # no other verb has an event loop

        run_server(settings)


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
        from sagehen.verbs.serving import run_demo

        sound = run_demo(settings, keep)
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


def _exports(url: str, credentials: Credentials, region: str) -> tuple[str, ...]:
    # A session token or profile of the user's real account would be sent along, or win.
    return (*export_lines(url, credentials, region), "unset AWS_SESSION_TOKEN AWS_PROFILE")


@contextmanager
def _demo_home(home: Path | None) -> Iterator[Path]:
    """A home of the demo's own, gone at its end, unless one is given."""
    if home is not None:
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="sagehen-demo-") as made:
        yield Path(made)
