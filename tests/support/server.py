"""A real server, in processes of its own, as a test sees it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil
from botocore.config import Config

from support.cli import run_command
from support.plain_http import ask

SAGEHEN = str(Path(sys.executable).with_name("sagehen"))
START_TIMEOUT_SECONDS = 120
STOP_TIMEOUT_SECONDS = 120
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
)
"""For what tests train themselves: the threads of several tests mostly wait for one another."""

MAKING_CLIENTS = threading.Lock()
"""boto3's session, which all clients are made by, is not for several threads at once."""

ONE_GATEWAY = {"SAGEHEN_GATEWAYS": "1"}
"""unless a test is about several: each takes some time to start"""


@dataclass
class Server:
    """A real server in processes of its own, over a home of its own."""

    home: Path
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    open_files: int | None = None
    """`ulimit -n`, where it is not to be this process's own."""
    program: tuple[str, ...] = (SAGEHEN,)

    @property
    def url(self) -> str:
        return (self.home / "run" / "address").read_text()

    @property
    def env(self) -> dict[str, str]:
        """The address and the keys alone, over a clean environment."""
        keys = json.loads((self.home / "credentials.json").read_text())
        return {
            **clean_environment(),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": keys["access_key"],
            "AWS_SECRET_ACCESS_KEY": keys["secret_key"],
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def user_env(self) -> dict[str, str]:
        """The environment that `eval "$(sagehen env)"` makes, over a clean one."""
        told = run_command("env", "--home", self.home, "--format", "json")
        assert told.status == 0, told.stderr
        return clean_environment() | json.loads(told.stdout)

    def client(self, service: str, region: str = "us-east-1", **config: Any) -> Any:
        """A boto3 client of this server; errors are not retried unless `config` says so."""
        keys = json.loads((self.home / "credentials.json").read_text())
        settings: dict[str, Any] = {"retries": {"max_attempts": 0}, **config}
        with MAKING_CLIENTS:
            return boto3.client(
                service,
                endpoint_url=self.url,
                aws_access_key_id=keys["access_key"],
                aws_secret_access_key=keys["secret_key"],
                region_name=region,
                config=Config(**settings),
            )

    def start(self) -> None:
        """Start it and wait until it is ready."""
        address = self.home / "run" / "address"
        address.unlink(missing_ok=True)
        output = (self.home.parent / "up.log").open("ab")
        command = [*self.program, "up", "--home", str(self.home), "--port", str(self.port)]
        if self.open_files is not None:
            command = ["sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_own_choice_of_threads() | ONE_GATEWAY | self.settings,
            start_new_session=True,
        )
        output.close()
        eventually(self._has_started, START_TIMEOUT_SECONDS)
        self.port = int(self.url.rpartition(":")[2])

    def _has_started(self) -> bool:
        assert self.process is not None
        log = self.home.parent / "up.log"
        assert self.process.poll() is None, log.read_text()
        return (self.home / "run" / "address").exists()

    def stop(self) -> int:
        """End it as Ctrl-C would; its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_TIMEOUT_SECONDS)

    def kill(self) -> None:
        """End the supervisor at once, as `kill -9` does; everything else must go with it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pids(self) -> dict[str, int]:
        """The process id of each role; of one of them, where it has several processes."""
        return dict(self._role_pids())

    def pid(self, role: str) -> int:
        """The process id of a role, as soon as it runs; one that has ended is started again."""
        found: dict[str, int] = {}

        def is_found() -> bool:
            found.update(self.pids())
            return role in found

        eventually(is_found)
        return found[role]

    def gateway_pids(self) -> set[int]:
        """The process ids of all gateways."""
        return {pid for role, pid in self._role_pids() if role == "gateway"}

    def _role_pids(self) -> list[tuple[str, int]]:
        assert self.process is not None
        return [
            (word.rpartition(".")[2], child)
            for child in children(self.process.pid)
            for word in _command(child)
            if word.startswith("sagehen.app.roles.")
        ]

    @property
    def bearer(self) -> dict[str, str]:
        """The header that opens the own paths."""
        return {"Authorization": f"Bearer {(self.home / 'token').read_text()}"}

    def get(self, path: str) -> bytes:
        """GET one of the server's own paths."""
        answer = ask(self.url + path, headers=self.bearer)
        assert answer.status == 200, answer
        return answer.body


@contextmanager
def server_maker() -> Iterator[Callable[..., Server]]:
    """`make(**settings)` starts a server; all are stopped in the end.

    Its containers see the tests' temporary folders, for model code that a test holds up, or hears
    from, by files; with `gates=False` they see nothing but their own.
    """
    made: list[Server] = []

    def make(*, gates: bool = True, **settings: str) -> Server:
        if gates:
            settings.setdefault("shared_folders", str(gates_folder()))
        folder = Path(tempfile.mkdtemp(prefix="sgh-"))
        chosen = {f"SAGEHEN_{name.upper()}": value for name, value in settings.items()}
        server = Server(folder / "home", chosen)
        made.append(server)
        server.start()
        return server

    try:
        yield make
    finally:
        for server in made:
            server.stop()
            shutil.rmtree(server.home.parent, ignore_errors=True)


def gates_folder() -> Path:
    """The folder of all temporary folders of this worker's tests."""
    assert _gates, "set_gates_folder was not called"
    return _gates[0]


def set_gates_folder(folder: Path) -> None:
    _gates[:] = [folder]


_gates: list[Path] = []


def run_to_its_end(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints; the test fails unless it ends well."""
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def eventually(holds: Callable[[], bool], timeout_seconds: float = 120) -> None:
    """Wait until `holds()`; the test fails when it does not in time."""
    began = looked = time.monotonic()
    while not holds():
        ended = time.monotonic()
        waited = ended - began
        assert waited < timeout_seconds, f"{holds} did not hold within {timeout_seconds} s"
        # To look takes its share of the machine too: what is dear to look at, or takes longer, is
        # looked at less often.
        time.sleep(min(max(0.02, 20 * (ended - looked), waited / 20), 0.1))
        looked = time.monotonic()


def children(pid: int) -> list[int]:
    """The process ids of a process's own children; none where it has ended."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []  # It has ended since it was listed.


def _own_choice_of_threads() -> dict[str, str]:
    """A clean environment without what the tests' own libraries are told."""
    clean = clean_environment()
    return {name: value for name, value in clean.items() if name not in ONE_THREAD}


def clean_environment() -> dict[str, str]:
    """This environment without anything that would steer an AWS client or the server."""
    steering = ("AWS_", "SAGEHEN_", "SAGEMAKER_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    # No file of this user's may have a say either.
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return clean | nowhere | {"AWS_EC2_METADATA_DISABLED": "true"}
