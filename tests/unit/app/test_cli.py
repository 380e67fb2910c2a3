"""What every command says of itself."""

import re
from collections.abc import Iterator

import pytest
import typer.main

from sagehen.app.cli import app
from support.cli import run_command


def commands(command=None, *path: str) -> Iterator[tuple[str, ...]]:
    command = command or typer.main.get_command(app)
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, *path, name)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_is_there_in_short_and_every_option_says_something(path: tuple[str, ...]) -> None:
    short, long = run_command(*path, "-h"), run_command(*path, "--help")
    assert (short.status, short.stdout) == (0, long.stdout)
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    assert command.help
    for parameter in command.params:
        described = getattr(parameter, "help", None)
        assert described
        # rich takes words in brackets for markup, and leaves them out.
        assert not re.search(r"\[[a-z]", described), described


def test_shells_can_complete() -> None:
    assert "--install-completion" in run_command("--help").stdout
