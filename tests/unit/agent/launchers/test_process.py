import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from sagehen.agent.faults import CannotStart
from sagehen.agent.launcher import LaunchPlan
from sagehen.agent.launchers.process import ContainerProcess, ProcessLauncher

WORKER = "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True)"


def plan(folder: Path, *command: str) -> LaunchPlan:
    return LaunchPlan(
        command=command,
        environment={"PATH": "/usr/bin:/bin", "MINE": "1"},
        folder=folder,
        log=folder / "log",
        log_bytes=2**20,
    )


async def say_self(folder: Path) -> list[str]:
    script = (
        "import os, resource; print(sorted(os.environ)); print(os.getcwd());"
        "print(os.getsid(0) == os.getpid(), resource.getrlimit(resource.RLIMIT_CORE));"
        "print(len(os.listdir('/proc/self/fd')))"
    )
    process = await ProcessLauncher().start(plan(folder, sys.executable, "-c", script))
    assert await process.wait() == 0
    return process.last_lines()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_container_is_alone_with_what_it_is_given(tmp_path: Path, run) -> None:
    with open(os.devnull) as inherited:
        os.set_inheritable(inherited.fileno(), True)
        environment, folder, alone, descriptors = run(say_self(tmp_path))
    assert "'MINE'" in environment
    assert "HOME" not in environment
    assert folder == str(tmp_path)
    assert alone == "True (0, 0)"
    assert descriptors == "4", "standard ones, and that which lists the folder"


async def test_a_container_ignores_no_signal(tmp_path: Path) -> None:
    """As a shell starts it: a program whose reader has gone is to end, and not to write on."""
    process = await ProcessLauncher().start(plan(tmp_path, "grep", "SigIgn", "/proc/self/status"))
    assert await process.wait() == 0
    ignored = int(process.last_lines()[0].removeprefix("SigIgn:"), 16)
    # The C library keeps two to itself, which nobody can set.
    assert not [number for number in signal.valid_signals() if ignored >> (number - 1) & 1]


async def test_what_cannot_be_watched_is_not_left_running(tmp_path: Path, monkeypatch) -> None:
    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", full)
    with pytest.raises(CannotStart, match="Too many open files"):
        await ProcessLauncher().start(plan(tmp_path, "sleep", "1000"))
    assert not [one for one in psutil.Process().children() if "1000" in one.cmdline()]


@pytest.mark.parametrize("command", ["/nonexistent", "/etc/passwd"])
async def test_what_cannot_be_run_is_told(tmp_path: Path, command: str) -> None:
    with pytest.raises(CannotStart, match=command):
        await ProcessLauncher().start(plan(tmp_path, command))


async def started_with_worker(folder: Path, then: str) -> tuple[ContainerProcess, psutil.Process]:
    process = await ProcessLauncher().start(plan(folder, sys.executable, "-c", WORKER + then))
    while not process.last_lines():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return process, psutil.Process(int(process.last_lines()[0]))


async def test_its_end_is_the_end_of_all_it_started(tmp_path: Path) -> None:
    process, worker = await started_with_worker(tmp_path, "; p.wait()")
    assert await process.memory_bytes() > 2**20
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    psutil.wait_procs([worker], timeout=10)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert await process.memory_bytes() == 0


async def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    process, worker = await started_with_worker(tmp_path, "; sys.exit(3)")
    assert await process.wait() == 3
    psutil.wait_procs([worker], timeout=10)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    process.terminate()
    process.kill()


def test_a_container_does_not_outlive_its_agent(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib
from sagehen.agent.launcher import LaunchPlan
from sagehen.agent.launchers.process import ProcessLauncher
folder = pathlib.Path({str(tmp_path)!r})
async def main():
    plan = LaunchPlan(command=("sleep", "1000"), environment={{"PATH": "/usr/bin:/bin"}},
                      folder=folder, log=folder / "log", log_bytes=1000)
    print((await ProcessLauncher().start(plan)).pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        container = psutil.Process(int(agent.stdout.readline()))
        agent.kill()
    psutil.wait_procs([container], timeout=10)
    assert not container.is_running() or container.status() == psutil.STATUS_ZOMBIE
