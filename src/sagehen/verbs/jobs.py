"""`sagehen jobs …`: training jobs, beyond what SageMaker's operations do."""

import json
import sys
from typing import Annotated
from urllib.parse import quote

import typer

from sagehen.ask import ask
from sagehen.config import load_settings
from sagehen.errors import Invalid
from sagehen.home import Home
from sagehen.terminal import ConfigOption, HomeOption, told_plainly

__all__ = ["jobs_app"]

jobs_app = typer.Typer(help="Look after training jobs.", no_args_is_help=True)


@jobs_app.callback()
def _verbs() -> None:
    """Or the one verb there is would be the command itself."""


@jobs_app.command()
def interrupt(
    name: Annotated[
        str | None, typer.Argument(help="A training job; else spot jobs, those begun last first.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=0, help="How many spot jobs; without it all of them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Take the capacity of running jobs back: they are begun again, from their checkpoints."""
    with told_plainly():
        if name is not None and count is not None:
            raise Invalid("Give either a training job or --count.")
        path = "jobs/interrupt" if name is None else f"jobs/{quote(name, safe='')}/interrupt"
        if count is not None:
            path += f"?count={count}"
        told = ask(Home(load_settings(config, home=home).home), path, "POST")
        names = told["interrupted"]
        shown = json.dumps(told) if as_json else "\n".join([f"{len(names)} interrupted.", *names])
        sys.stdout.write(shown + "\n")
