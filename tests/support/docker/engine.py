"""A Docker Engine of the tests' own, in temporary folders; it needs root."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.server import eventually

__all__ = ["running_engine"]

START_SECONDS = 60


@contextmanager
def running_engine(*, firewall: bool = False) -> Iterator[Any]:
    """A client of an engine without images; `client.host` is its address. Skips the test where
    none can be started.

    Args:
        firewall: the engine may set up this network's: it keeps containers apart.
    """
    docker = pytest.importorskip("docker", reason="the docker extra is not installed")
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("no dockerd is installed, or this is not root")
    folder = Path(tempfile.mkdtemp(prefix="sgh-dk-"))
    host = f"unix://{folder}/engine.sock"
    command = [program, "-H", host, "--data-root", folder / "data", "--exec-root", folder / "exec"]
    command += ["--pidfile", folder / "pid", "--bridge=none", "--shutdown-timeout=5"]
    if not firewall:
        # The machine's firewall and other engines are left alone.
        command += ["--iptables=false", "--ip-masq=false"]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: engine.poll() is not None or _answers(host), START_SECONDS)
        if engine.poll() is not None:
            pytest.skip(f"dockerd does not run here: {(folder / 'log').read_text()[-500:]}")
        client = docker.DockerClient(base_url=host, version="auto")
        client.host = host
        yield client
        # Tests that need the engine fail by themselves where it has died; this is no test.
        if engine.poll() is None:
            for container in client.containers.list(all=True):
                container.remove(force=True)
            client.networks.prune()
        client.close()
    finally:
        _end(engine)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(host: str) -> bool:
    # Not by its client, which leaves sockets open when it fails.
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0


def _end(engine: subprocess.Popen[bytes]) -> None:
    below = psutil.Process(engine.pid).children(recursive=True) if engine.poll() is None else []
    engine.terminate()
    try:
        engine.wait(30)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()
    for process in below:  # its containerd, if it was killed
        if process.is_running():
            process.kill()
