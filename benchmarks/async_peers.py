"""The queues of tasks that are compared: Celery, and Ray Serve's consumers, over Redis."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environments import PEERS, Environment, environment
from frame import Measured
from load import connect
from peer_servers import START_SECONDS, reason
from sides import HERE, Failed, free_port, process, wait_for

TEXTS = [f"{number:04}".ljust(100, ".") for number in range(64)]
"""inputs of the tasks, which echo them"""
SENDERS = 64
"""threads that enqueue tasks while the way through the queue is measured"""

Enqueue = Callable[[int, float], Measured]
"""Gets the number of connections, and seconds."""
Through = Callable[[int], Measured]
"""Gets the number of tasks."""


@dataclass(frozen=True)
class Running:
    """A queue of a contestant."""

    working: Callable[[], AbstractContextManager[dict[str, Through]]]
    """While somebody works: the ways through, by what sets them apart."""
    resting: Callable[[], AbstractContextManager[Enqueue]]
    """While nobody takes tasks out. After `working`."""


@dataclass(frozen=True)
class Contestant:
    """A task queue with one kind of persistence."""

    key: str
    name: str
    package: str
    environment: str
    """A peer's: the folder of its set-up in peers/."""
    durable: str
    """By what."""
    start: Callable[[Path, Path], AbstractContextManager[Running]]
    """Gets an empty folder and the cache of environments."""


@dataclass(frozen=True)
class Client:
    """A peer's client library, in a separate process."""

    peer_environment: Environment
    folder: Path
    variables: dict[str, str]

    def command(self, mode: str, threads: int, amount: float) -> list[str]:
        python = str(self.peer_environment.tools / "python")
        return [python, "client.py", mode, str(threads), str(amount), "texts.json"]

    def ask(self, mode: str, threads: int, amount: float) -> Measured:
        finished = subprocess.run(
            self.command(mode, threads, amount),
            cwd=self.folder,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise Failed(f"The client: {finished.stderr.strip().splitlines()[-1]}")
        measured: Measured = json.loads(finished.stdout.splitlines()[-1])
        return measured

    @contextmanager
    def served(self, worker: list[str]) -> Iterator[None]:
        """Runs a worker that has completed a first task."""
        log = self.folder / "log.txt"
        with process(worker, log, self.folder, **self.variables) as running:
            try:
                first = self.command("through", 1, 1)
                with process(first, None, self.folder, **self.variables) as asked:
                    wait_for(lambda: asked.poll() == 0, running, START_SECONDS)
            except Failed as failure:
                raise Failed(f"{failure} {reason(log)}") from failure
            yield


@contextmanager
def client(key: str, fsync: str, folder: Path, cache: Path) -> Iterator[Client]:
    """Starts a Redis, which keeps tasks and results on disk, and yields its client."""
    peer_environment = environment(key, cache, libraries=())
    shutil.copytree(PEERS / key, folder, dirs_exist_ok=True)
    (folder / "texts.json").write_text(json.dumps(TEXTS))
    with redis(folder, fsync) as port:
        urls = {
            "BENCHMARK_BROKER": f"redis://127.0.0.1:{port}/0",
            "BENCHMARK_RESULTS": f"redis://127.0.0.1:{port}/1",
            "PYTHONPATH": f"{PEERS / 'common'}:{HERE}",
            "TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        yield Client(peer_environment, folder, peer_environment.variables | urls)


@contextmanager
def redis(folder: Path, fsync: str) -> Iterator[int]:
    """Yields the port of a Redis with an append-only file; `fsync` is its policy for syncing."""
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", fsync]
    with process(command) as running:
        wait_for(lambda: takes_connections(port), running)
        yield port


def takes_connections(port: int) -> bool:
    try:
        connect(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def peer(
    key: str, worker_of: Callable[[Environment], list[str]], fsync: str, folder: Path, cache: Path
) -> Iterator[Running]:
    with client(key, fsync, folder, cache) as asking:

        @contextmanager
        def working() -> Iterator[dict[str, Through]]:
            with asking.served(worker_of(asking.peer_environment)):
                yield {"": partial(asking.ask, "through", SENDERS)}

        yield Running(working, lambda: nullcontext(partial(asking.ask, "enqueue")))


def celery_worker(peer_environment: Environment) -> list[str]:
    """Returns the command of a worker with one process per core, Celery's default."""
    return [str(peer_environment.tools / "celery"), "-A", "tasks", "worker", "-l", "WARNING"]


def ray_worker(peer_environment: Environment) -> list[str]:
    return [str(peer_environment.tools / "python"), "app.py"]


def celery(key: str, fsync: str, durable: str) -> Contestant:
    name = f"Celery with Redis, acks late, appendfsync {fsync}"
    start = partial(peer, "celery", celery_worker, fsync)
    return Contestant(key, name, "celery", "celery", durable, start)


CONTESTANTS = (
    celery("celery", "always", "an fsync before the answer"),
    celery("celery-everysec", "everysec", "an fsync a second: up to a second of tasks can be lost"),
    Contestant(
        "ray",
        "Ray Serve's task consumer (alpha; by Celery), appendfsync always",
        "ray",
        "ray_async",
        "an fsync before the answer",
        partial(peer, "ray_async", ray_worker, "always"),
    ),
)
