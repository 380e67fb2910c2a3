"""The AWS CLI as people type it, unmodified."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

from support.server import Server

# Starting Python and the CLI takes longer than most commands: one process does them all.
COMMANDS = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from awscli.clidriver import create_clidriver

for line in sys.stdin:
    printed, wrong = StringIO(), StringIO()
    with redirect_stdout(printed), redirect_stderr(wrong):
        status = create_clidriver().main(json.loads(line))
    print(json.dumps([status, printed.getvalue(), wrong.getvalue()]), flush=True)
"""


class AwsCli:
    """`cli("s3 ls", …)` runs `aws s3 ls …`; gives what it prints, and fails if it fails."""

    def __init__(self, commands: IO[str], answers: IO[str]) -> None:
        self._commands = commands
        self._answers = answers

    def __call__(self, command: str, *more: object) -> str:
        status, printed, wrong = self.run(command, *more)
        assert status == 0, wrong
        return printed

    def json(self, command: str, *more: object) -> Any:
        """What it prints, as JSON; None where that is nothing."""
        printed = self(command, *more)
        return json.loads(printed) if printed else None

    def run(self, command: str, *more: object) -> tuple[int, str, str]:
        """Its exit status, what it prints, and what it says is wrong."""
        words = [*command.split(), *map(str, more)]
        print(json.dumps(words), file=self._commands, flush=True)
        status, printed, wrong = json.loads(self._answers.readline())
        return status, printed, wrong


@contextlib.contextmanager
def aws_cli(server: Server) -> Iterator[AwsCli]:
    """The CLI with the environment of that server's users."""
    command = [sys.executable, "-c", COMMANDS]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=server.env, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield AwsCli(process.stdin, process.stdout)
