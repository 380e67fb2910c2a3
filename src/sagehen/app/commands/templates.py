"""`sagehen apply` and `sagehen delete`: commands for templates."""

from pathlib import Path
from typing import Annotated

import typer

from sagehen.base.terminal import ConfigOption, HomeOption, plain_errors

__all__ = ["apply", "delete"]

StackOption = Annotated[str | None, typer.Option(help="The stack's name; the file's by default.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", min=1, help="Seconds to wait for one resource, such as an endpoint."),
]


def apply(
    file: Annotated[Path, typer.Argument(help="A CloudFormation template, YAML or JSON.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter. Repeatable."),
    ] = None,
    stack: StackOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan only; exit with 3 if it has changes."),
    ] = False,
    yes: YesOption = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over what is there already, if it is equal.")
    ] = False,
    timeout: TimeoutOption = 3600,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Create or update what a template describes, after showing the plan."""
    # boto3 is slow to import, and unneeded by other commands.
    from sagehen.apply.run import Options, apply_template

    options = Options(stack=stack, yes=yes, timeout_seconds=timeout, home=home, config=config)
    with plain_errors():
        parameters = parameter or []
        status = apply_template(file, parameters, options, adopt=adopt, dry_run=dry_run)
    raise typer.Exit(status)


def delete(
    file: Annotated[
        Path | None, typer.Argument(help="The template that was applied; or give --stack.")
    ] = None,
    stack: StackOption = None,
    yes: YesOption = False,
    timeout: TimeoutOption = 3600,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a stack: what a template has made, but for buckets that hold something."""
    from sagehen.apply.run import Options, delete_stack

    options = Options(stack=stack, yes=yes, timeout_seconds=timeout, home=home, config=config)
    with plain_errors():
        status = delete_stack(file, options)
    raise typer.Exit(status)
