"""What the verbs of the command line share: options, and how they speak."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from sagehen.errors import SagehenError

__all__ = ["ConfigOption", "HomeOption", "err", "out", "plain_errors"]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

HomeOption = Annotated[Path | None, typer.Option(help="Where everything is kept. [~/.sagehen]")]
ConfigOption = Annotated[Path | None, typer.Option(help="Settings. [sagehen.toml in the home]")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """An expected error is one sentence, not a traceback."""
    try:
        yield
    except SagehenError as error:
        err.print(f"[red]sagehen:[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
