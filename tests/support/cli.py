"""Sagehen's commands in the tests' own process: to start another takes most of a second."""

from typing import NamedTuple

from typer.testing import CliRunner

__all__ = ["Ended", "run_command"]


class Ended(NamedTuple):
    """What a command leaves."""

    status: int
    stdout: str
    stderr: str


def run_command(*words: object) -> Ended:
    """As `sagehen words…`; what it does not catch is raised."""
    from sagehen.app.cli import app

    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)
