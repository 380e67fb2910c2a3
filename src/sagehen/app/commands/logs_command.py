"""`sagehen logs`: shows logs of containers and the server."""

import re
import sys
import time
from typing import Annotated

import typer

from sagehen.app.commands.completion import complete_names
from sagehen.base.config import load_settings
from sagehen.base.errors import Invalid
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, plain_errors

__all__ = ["show_logs"]


def show_logs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An endpoint or a job. Without one: the server's own logs.",
            autocompletion=complete_names,
        ),
    ] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            help="How many lines back, of all together; in a cluster at most the last 4 MiB of "
            "each machine.",
        ),
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing what is added, until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Only what is newer: an age (30s, 10m, 2h, 1d) or an ISO 8601 time."),
    ] = None,
    grep: Annotated[
        str | None, typer.Option(help="Only lines that match this regular expression.")
    ] = None,
    job: Annotated[
        bool, typer.Option("--job", help="NAME is a job, even if an endpoint has it too.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what containers, or the server's processes, have printed, in order of time (UTC)."""
    from sagehen.app.commands.cluster_logs import is_in_cluster, read_cluster_logs
    from sagehen.app.commands.logs import Selection, parse_since, read_logs

    with plain_errors():
        selection = Selection(
            lines=lines,
            since=None if since is None else parse_since(since, time.time()),
            pattern=None if grep is None else _pattern(grep),
        )
        server_home = Home(load_settings(config, home=home).home)
        if name is not None and is_in_cluster(server_home):
            shown = read_cluster_logs(
                server_home, name, selection, follow=follow, job=job, warn=_warn
            )
        else:
            shown = read_logs(server_home, name, selection, follow=follow, job=job)
        for line in shown:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def _warn(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise Invalid(
            f"--grep takes a regular expression, but {text!r} is not one: {error}."
        ) from error
