"""A reader of a guide, who pastes its blocks in order: into one shell, one Python, and files."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.server import ONE_GATEWAY, clean_environment, eventually

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|file): (?P<value>[^\n]+) -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
INSTALL = re.compile(r"^(python3 -m venv|pip install) .*\n", re.MULTILINE)
"""Lines that download what the tests' environment has; `make test-pythons` runs the README's."""
UP = re.compile(r"^(SAGEHEN_\w+=\S+ )?sagehen up\b")
PYTHON = """
import sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    with open(line.strip()) as block:
        exec(compile(block.read(), block.name, "exec"), names)
    open(block.name + ".done", "w").close()
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    file: str = ""
    not_run: str = ""
    """why; empty for a block that runs"""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and not self.not_run and not self.file


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=page.name,
            line=text.count("\n", 0, match.start("text")),
            language=match["language"],
            text=match["text"],
            **{str(match["mark"]).replace(" ", "_"): match["value"]} if match["mark"] else {},
        )
        for match in BLOCK.finditer(text)
    ]


def _examples() -> set[str]:
    return {path.read_text() for path in (ROOT / "examples").glob("*.py")}


class Reader:
    """A user with a home of their own, an installed clone, and terminals in it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True)
        self.home = Path(self._folder.name)
        self._environment = clean_environment() | ONE_GATEWAY
        self._environment |= {"HOME": str(self.home), "SAGEHEN_PORT": "0"}
        own, tools = self.home / "bin", Path(sys.executable).parent
        own.mkdir()
        # The one that pip installs does not start where the environment's path has a space.
        (own / "aws").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m awscli "$@"\n')
        (own / "aws").chmod(0o700)
        self._environment["PATH"] = f"{own}:{tools}:{self._environment['PATH']}"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = str(listener.getsockname()[1])
            """instead of 9100, which something else may have"""
        self._servers: list[subprocess.Popen[bytes]] = []

    def clone(self, page: str) -> Path:
        """A folder with what guides use of an installed clone."""
        folder = self.home / Path(page).stem
        activate = folder / ".venv" / "bin" / "activate"
        activate.parent.mkdir(parents=True)
        activate.touch()
        for name in ("deploy", "examples"):
            (folder / name).symlink_to(ROOT / name)
        return folder

    def start_server(self, command: str, folder: Path) -> None:
        """Run `sagehen up` in a terminal of its own, until it is ready."""
        log = folder / f"up-{len(self._servers)}.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._servers.append(server)
        eventually(lambda: "is ready at" in log.read_text() or server.poll() is not None)
        assert server.poll() is None, log.read_text()

    def close(self) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGINT)
        for server in self._servers:
            server.wait(120)
        self._folder.cleanup()

    def read(self, page: Path, *, server_runs: bool) -> None:
        """Paste all blocks of a page; the first that fails ends the test."""
        folder = self.clone(page.name)
        shell = Terminal(["bash", "-e", "-o", "pipefail", "-s"], folder, self._environment)
        python: Terminal | None = None
        try:
            if server_runs:
                shell.paste_text("env", 'eval "$(sagehen env)"\n')
            for block in read_blocks(page):
                if block.text in _examples():
                    continue  # an earlier block runs it
                if block.file:
                    path = self.home / block.file.removeprefix("~/")
                    path = path if block.file.startswith("~/") else folder / block.file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.text)
                elif block.language == "sh" and block.runs:
                    self._paste_shell(shell, block, folder)
                elif block.runs:
                    if python is None:
                        python = Terminal([sys.executable, "-c", PYTHON], *shell.surroundings())
                    python.paste(block)
        finally:
            for terminal in (python, shell):
                if terminal is not None:
                    terminal.close()

    def _paste_shell(self, shell: "Terminal", block: Block, folder: Path) -> None:
        text = INSTALL.sub("", block.text).replace("9100", self._port)
        lines = text.splitlines(keepends=True)
        ups = [line for line in lines if UP.match(line) and not line.endswith("&\n")]
        shell.paste(block, "".join(line for line in lines if line not in ups))
        for line in ups:
            self.start_server(line.partition("  #")[0].strip(), folder)


class Terminal:
    """A shell or a Python that reads the files of blocks whose names it gets."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._is_shell = command[0] == "bash"
        self._folder = folder
        self._log = folder / f"{'shell' if self._is_shell else 'python'}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def paste(self, block: Block, text: str | None = None) -> None:
        """Run a block; what its comments say that it prints has to be lines of its output."""
        output = self.paste_text(block.name, block.text if text is None else text)
        lines = iter(output.splitlines())
        for expected in re.findall(r"# prints (.+)$", block.text, re.MULTILINE):
            assert any(line.strip() == expected for line in lines), (block.name, expected, output)

    def paste_text(self, name: str, text: str) -> str:
        path = self._folder / f"block-{name}"
        done = Path(f"{path}.done")
        path.write_text(text)
        before = self._log.stat().st_size
        assert self._process.stdin is not None
        order = f"source {path} < /dev/null\ntouch {done}\n" if self._is_shell else f"{path}\n"
        self._process.stdin.write(order)
        self._process.stdin.flush()
        eventually(lambda: done.exists() or self._process.poll() is not None)
        output = self._log.read_bytes()[before:].decode()
        assert done.exists(), f"{name} has failed:\n{text}\n{output}"
        return output

    def surroundings(self) -> tuple[Path, dict[str, str]]:
        """The folder that the shell is in, and what it hands on to programs."""
        self.paste_text("surroundings", f"pwd > {self._folder}/pwd; env -0 > {self._folder}/env\n")
        variables = (self._folder / "env").read_text().rstrip("\0").split("\0")
        folder = Path((self._folder / "pwd").read_text().strip())
        return folder, dict(variable.split("=", 1) for variable in variables)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        with suppress(ProcessLookupError):  # what a block that failed has left
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)
