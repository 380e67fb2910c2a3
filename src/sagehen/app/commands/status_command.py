"""`sagehen status`: shows endpoints and jobs."""

import sys
from typing import Annotated

import typer

from sagehen.app.commands.completion import complete_endpoints
from sagehen.app.commands.output import json_text, print_line
from sagehen.app.commands.status import (
    fetch_status,
    plain_status,
    render_status,
    select_endpoint,
)
from sagehen.base.config import load_settings
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

__all__ = ["show_status"]


def show_status(
    endpoint: Annotated[
        str | None,
        typer.Argument(
            help="An endpoint, with each of its instances; else all.",
            autocompletion=complete_endpoints,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the endpoints with what they do, and how many jobs run."""
    with plain_errors():
        status = fetch_status(Home(load_settings(config, home=home).home))
        details = endpoint is not None
        if endpoint is not None:
            status = select_endpoint(status, endpoint)
        if as_json:
            print_line(json_text(status))
        elif out.is_terminal:
            out.print(render_status(status, details=details))
        else:
            sys.stdout.write(plain_status(status, details=details) + "\n")
