"""The AWS CLI as people type it, unmodified."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from support import warm_aws
from support.server import Server


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
    with _warm(server.user_env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield AwsCli(process.stdin, process.stdout)


@contextlib.contextmanager
def aws_command(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """`folder` has a command `aws` meanwhile, for scripts, whose environment is this one."""
    address = str(folder / "aws.sock")
    with _warm(environment, address) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        command = folder / "aws"
        command.write_text(warm_aws.SHIM.format(python=sys.executable, address=address))
        command.chmod(0o700)
        try:
            yield
        finally:
            process.terminate()


def _warm(environment: Mapping[str, str], *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, warm_aws.__file__, *arguments],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
