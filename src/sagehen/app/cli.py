"""The `sagehen` command."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sagehen import __version__
from sagehen.app.commands.api_keys import key_app
from sagehen.app.commands.async_queues import async_app
from sagehen.app.commands.backups import adopt, backup, restore
from sagehen.app.commands.cluster import cluster_app
from sagehen.app.commands.environment import EnvCommand, env
from sagehen.app.commands.inference_service import inference_service_app
from sagehen.app.commands.logs_command import show_logs
from sagehen.app.commands.offline_results import offline_results_app
from sagehen.app.commands.scaling import scaling_app
from sagehen.app.commands.status_command import show_status
from sagehen.app.commands.stopping import reload_settings, stop
from sagehen.app.commands.templates import apply, delete
from sagehen.app.commands.training import training_app
from sagehen.app.commands.transforms import transform_app
from sagehen.base.config import load_settings
from sagehen.base.terminal import ConfigOption, HomeOption, out, plain_errors

__all__ = ["app"]

app = typer.Typer(
    help="SageMaker Inference on your own machines.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PortOption = Annotated[
    int | None, typer.Option(help="The port; 0 takes any free one. 9000 by default.")
]
HostOption = Annotated[
    str | None, typer.Option(help="The address to listen on; 127.0.0.1 by default.")
]

ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="The cluster to belong to: the address of a Ray cluster, `local:3` for a small one on "
        "this machine, or `state` for the servers that share the state. None by default."
    ),
]


@app.command()
def up(
    home: HomeOption = None,
    port: PortOption = None,
    host: HostOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a server in the foreground, until Ctrl-C."""
    with plain_errors():
        from sagehen.app.commands.serving import run_server

        flags = {"home": home, "port": port, "host": host, "cluster": cluster}
        run_server(partial(load_settings, config, **flags))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option(help="Leave the server running at the end.")] = False,
    home: Annotated[
        Path | None, typer.Option(help="The folder for everything; a temporary one by default.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port; any free one by default.")] = None,
    config: ConfigOption = None,
) -> None:
    """Run a demo that checks itself: ten cities' house prices on a multi-model endpoint."""
    with plain_errors(), _demo_home(home) as folder:
        settings = load_settings(config, home=folder, port=port if port is not None else 0)
        from sagehen.app.commands.serving import run_demo

        sound = run_demo(settings, keep)
    raise typer.Exit(0 if sound else 1)


def _print_version(requested: bool) -> None:
    if requested:
        out.print(f"sagehen {__version__}")
        raise typer.Exit


def _defaults(command: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Returns what stands before the command as the defaults of its options, and of those below."""
    below = getattr(command, "commands", {}).items()
    return given | {name: _defaults(inner, given) for name, inner in below}


@app.callback()
def main(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """SageMaker Inference on your own machines."""
    options = {"home": home, "config": config}
    given = {name: value for name, value in options.items() if value is not None}
    ctx.default_map = _defaults(ctx.command, given)


app.command("stop")(stop)
app.command("reload")(reload_settings)
app.command("env", cls=EnvCommand)(env)
app.command("status")(show_status)
app.command("logs")(show_logs)
app.add_typer(training_app, name="training")
app.add_typer(training_app, name="jobs", hidden=True)
app.add_typer(transform_app, name="transform")
app.add_typer(offline_results_app, name="offline-results")
app.add_typer(async_app, name="async")
app.add_typer(scaling_app, name="scaling")
app.add_typer(cluster_app, name="cluster")
app.add_typer(key_app, name="api-key")
app.add_typer(inference_service_app, name="inference-service")
app.command("apply")(apply)
app.command("delete")(delete)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("adopt")(adopt)


@contextmanager
def _demo_home(home: Path | None) -> Iterator[Path]:
    if home is not None:
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="sagehen-demo-") as folder:
        yield Path(folder)
