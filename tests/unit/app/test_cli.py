"""What every command says of itself."""

import re
from collections.abc import Iterator
from pathlib import Path

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


def test_shared_options_may_stand_before_the_command(short_path: Path) -> None:
    home, other = short_path / "home", short_path / "other"
    for words in (("status",), ("async", "list"), ("jobs", "list"), ("stop",)):
        before = run_command("--home", home, *words)
        assert before == run_command(*words, "--home", home)
        assert f"No server runs with the home {home}." in before.stderr
        behind = run_command("--home", other, *words, "--home", home)
        assert behind == before
    assert run_command("--home", home, "api-key", "list").stdout == "There are no keys.\n"


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_no_command_ignores_a_shared_option(path: tuple[str, ...]) -> None:
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    if not hasattr(command, "commands"):
        assert {"home", "config"} <= {parameter.name for parameter in command.params}


def test_shells_can_complete() -> None:
    assert "--install-completion" in run_command("--help").stdout
