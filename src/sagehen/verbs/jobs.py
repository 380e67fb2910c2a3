"""`sagehen jobs …`: training jobs, beyond what SageMaker's operations do."""

import json
import sys
from typing import Annotated

import typer

from sagehen.errors import Invalid
from sagehen.terminal import ConfigOption, HomeOption, plain_errors

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
    from sagehen.apply.connect import connect_home  # Other verbs need no boto3.

    with plain_errors():
        if name is not None and count is not None:
            raise Invalid("Give either a training job or --count.")
        path = ("interrupt",) if name is None else (name, "interrupt")
        query = None if count is None else {"count": str(count)}
        answer = connect_home(home, config).own("POST", "jobs", *path, query=query)
        names = answer["interrupted"]
        shown = json.dumps(answer) if as_json else "\n".join([f"{len(names)} interrupted.", *names])
        sys.stdout.write(shown + "\n")
