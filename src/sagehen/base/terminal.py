"""Options and error output that all commands share."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from sagehen.base.errors import SagehenError

__all__ = ["ConfigOption", "HomeOption", "JsonOption", "err", "out", "plain_errors"]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# No brackets in help texts: they are markup.
HomeOption = Annotated[
    Path | None, typer.Option(help="The folder where everything is kept; ~/.sagehen by default.")
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="The settings file; sagehen.toml in the home by default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Prints expected errors as one sentence, without a traceback."""
    try:
        yield
    except SagehenError as error:
        err.print(f"[red]sagehen:[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = f" ({error.filename})" if error.filename else ""
        err.print(
            f"[red]sagehen:[/red] The disk is full{escape(where)}. Free some space, then run the "
            "command again."
        )
        raise typer.Exit(1) from error
