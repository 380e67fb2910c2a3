import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import uvloop

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.launchers import become_container, spawn
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.process import ContainerProcess, ProcessLauncher, show_gpus
from support.processes import children_with

WORKER = "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True)"


def plan(folder: Path, *command: str) -> LaunchPlan:
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
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


async def test_a_container_has_the_mask_of_the_servers_user_and_not_the_servers(
    tmp_path: Path,
) -> None:
    before = os.umask(0o077)
    try:
        launcher = ProcessLauncher(umask=0o027)
        process = await launcher.start(plan(tmp_path, "sh", "-c", "umask"))
        assert await process.wait() == 0
    finally:
        os.umask(before)
    assert process.last_lines() == ["0027"]


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
    assert children_with("1000") == []


async def test_what_does_not_get_started_in_time_is_given_up(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(spawn, "_BECOME", ("/bin/sh", "-c", "sleep 1001"))
    monkeypatch.setattr(spawn, "START_SECONDS", 0.1)
    with pytest.raises(CannotStart, match=r"not started within 0\.1 s"):
        await ProcessLauncher().start(plan(tmp_path, "true"))
    assert children_with("1001") == []


async def test_what_nobody_can_listen_to_is_not_started(tmp_path: Path, monkeypatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("threading.Thread.start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await ProcessLauncher().start(plan(tmp_path, "sleep", "1002"))
    assert children_with("1002") == []
    # What earlier tests had may be closed meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_it_is_started_though_every_thread_waits(tmp_path: Path) -> None:
    """For an object store that is slow, for example."""
    loop, go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = loop.run_in_executor(None, go_on.wait)
    try:
        async with asyncio.timeout(120):
            process = await ProcessLauncher().start(plan(tmp_path, "true"))
    finally:
        go_on.set()
    await waiting
    assert await process.wait() == 0


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
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert await process.memory_bytes() == 0


async def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    then = "; import os, time\nwhile not os.path.exists('seen'): time.sleep(0.01)\nsys.exit(3)"
    process, worker = await started_with_worker(tmp_path, then)
    (tmp_path / "seen").touch()
    assert await process.wait() == 3
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    process.terminate()
    process.kill()


ORPHANS = """
import asyncio, os, pathlib, signal, sys
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.instances.process_tree import children
folder = pathlib.Path(sys.argv[1])
SCRIPT = "setsid env -i sh -c 'setsid sleep 1002 & sleep 1002' & sleep 0.2; echo ready; sleep 1000"
async def main():
    orphans = Orphans()
    orphans.adopt()
    launcher = ProcessLauncher(orphans=orphans)
    plan = LaunchPlan(instance_id="i-1", name="primary", command=("sh", "-c", SCRIPT),
                      folder=folder, environment={"PATH": "/usr/bin:/bin"},
                      log=folder / "log", log_bytes=1000)
    kept, container = [await launcher.start(plan) for _ in range(2)]
    while container.last_lines() != ["ready"]:
        await asyncio.sleep(0.01)
    os.kill(container.pid, signal.SIGKILL)
    await container.wait()
    while len(children(os.getpid())) > 1:
        await asyncio.sleep(0.01)
    print(children(os.getpid()) == [kept.pid] and not kept.has_ended)
    kept.kill()
    await kept.wait()
    while children(os.getpid()):
        await asyncio.sleep(0.01)
asyncio.run(main())
"""


def test_what_gets_away_from_its_container_is_ended_with_it(tmp_path: Path) -> None:
    """In a session of its own, with another environment, its parent gone: without a cgroup."""
    command = [sys.executable, "-c", ORPHANS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        output, _ = agent.communicate(timeout=250)
    assert output == b"True\n"


async def test_killed_without_a_cgroup_it_takes_those_along_that_left_its_session(
    tmp_path: Path,
) -> None:
    script = "setsid sleep 1003 & setsid setsid sleep 1003 & echo ready; wait"
    process = await ProcessLauncher().start(plan(tmp_path, "sh", "-c", script))
    while len(left := children_with("sleep", process.pid)) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    psutil.wait_procs(left, timeout=60)
    assert not [one for one in left if one.is_running() and one.status() != "zombie"]


async def test_one_that_passes_its_limit_is_ended_and_says_so(tmp_path: Path) -> None:
    fill = "import time; data = bytearray(b'x') * (80 << 20); time.sleep(1000)"
    limited = replace(plan(tmp_path, sys.executable, "-c", fill), limits=Limits(memory_bytes=2**25))
    process = await ProcessLauncher().start(limited)
    assert await process.wait() == -signal.SIGKILL
    assert process.ended_because is not None
    assert "passed the 32 MiB of memory" in process.ended_because
    assert process.hits()[InstanceLimit.MEMORY] == 1
    assert await process.wait() == -signal.SIGKILL, "asked again, it is not told again"
    told = limited.log.read_text()
    assert told == "sagehen: it was ended because it passed the 32 MiB of memory of its instance.\n"


async def test_one_that_is_killed_by_others_does_not_blame_a_limit(tmp_path: Path) -> None:
    process = await ProcessLauncher().start(plan(tmp_path, "sleep", "1000"))
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    assert process.ended_because is None


def test_a_container_does_not_outlive_its_agent(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.process import ProcessLauncher
folder = pathlib.Path({str(tmp_path)!r})
async def main():
    plan = LaunchPlan(instance_id="i-1", name="primary", command=("sleep", "1000"),
                      environment={{"PATH": "/usr/bin:/bin"}}, folder=folder,
                      log=folder / "log", log_bytes=1000)
    print((await ProcessLauncher().start(plan)).pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        container = psutil.Process(int(agent.stdout.readline()))
        agent.kill()
    psutil.wait_procs([container], timeout=60)
    assert not container.is_running() or container.status() == psutil.STATUS_ZOMBIE


async def test_the_program_is_looked_for_in_the_containers_path(tmp_path: Path) -> None:
    """As `execvp` does: past what is missing or may not be run, to the first that may."""
    folders = [tmp_path / name for name in ("gone", "refused", "right", "later")]
    for folder in folders[1:]:
        folder.mkdir()
        (folder / "mine").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "mine").chmod(0o644 if folder.name == "refused" else 0o755)
    path = {"PATH": ":".join(map(str, folders))}
    process = await ProcessLauncher().start(replace(plan(tmp_path, "mine"), environment=path))
    assert await process.wait() == 0
    assert process.last_lines() == ["right"]
    only = {"PATH": ":".join(map(str, folders[:2]))}
    with pytest.raises(CannotStart, match=r"^mine: Permission denied$"):
        await ProcessLauncher().start(replace(plan(tmp_path, "mine"), environment=only))


def test_what_starts_it_imports_nothing_that_takes_long() -> None:
    """With these, each container's start would take twice the processor's time."""
    listed = "; import sys; print(*sys.modules)"
    path = become_container.__file__
    source, start, _ = Path(path).read_text().rpartition('if __name__ == "__main__":')
    assert start
    program = f"import sys; sys.argv[0] = {path!r}; exec({source!r}){listed}"
    told = subprocess.run(
        [sys.executable, "-ISs", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(told.stdout.split())
    assert {"_ctypes", "container_files"} <= loaded
    assert not loaded & {"os", "signal", "ctypes", "contextlib", "enum", "collections", "sagehen"}


@pytest.mark.parametrize(
    ("gpus", "choice", "visible"),
    [
        ((), None, ""),
        ((), "0", ""),
        (("1", "3"), None, "1,3"),
        (("1", "3"), "1", "3"),
        (("1", "3"), "1, 0", "3,1"),
        (("1", "3"), "", ""),
        (("1", "3"), "-1", ""),
        # CUDA ends at the first GPU that it does not know.
        (("1", "3"), "0,5,1", "1"),
        (("MIG-a", "MIG-b"), "MIG-b", "MIG-b"),
    ],
)
def test_a_container_sees_its_gpus_and_the_user_chooses_among_them(
    tmp_path: Path, gpus: tuple[str, ...], choice: str | None, visible: str
) -> None:
    chosen = {} if choice is None else {"CUDA_VISIBLE_DEVICES": choice}
    given = replace(plan(tmp_path, "true"), gpus=gpus, environment=chosen)
    assert show_gpus(given).environment == {
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


async def test_a_containers_variables_name_its_gpus(tmp_path: Path) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES"'
    process = await ProcessLauncher().start(
        replace(plan(tmp_path, "sh", "-c", script), gpus=("2",))
    )
    assert await process.wait() == 0
    assert process.last_lines() == ["2"]
    unmanaged = plan(tmp_path, "sh", "-c", script)
    assert show_gpus(unmanaged) is unmanaged


@pytest.mark.parametrize("gpus", [("0",), None])
def test_containers_with_gpus_see_the_users_mps_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...] | None
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    container = replace(plan(tmp_path, "true"), gpus=gpus)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in show_gpus(container).environment
    (tmp_path / "control").touch()
    shown = show_gpus(container)
    assert shown.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)
    assert shown.view.shown == (tmp_path,)
    # A container without GPUs does not, nor does one whose model chose another folder.
    assert show_gpus(replace(container, gpus=())).view.shown == ()
    own = container.environment | {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
    chosen = show_gpus(replace(container, environment=own))
    assert (chosen.environment["CUDA_MPS_PIPE_DIRECTORY"], chosen.view.shown) == ("/nowhere", ())
