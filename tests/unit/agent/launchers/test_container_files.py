"""Containers that see their folder at /opt/ml, and nothing of that outside."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from sagehen.agent.errors import CannotStart
from sagehen.agent.launchers import become_container, container_files
from sagehen.agent.launchers.launcher import LaunchPlan, View
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.launchers.walls import OPT_ML, Wall
from support.mounts import may_mount

NOBODY = 65534
PROGRAMS = ("become_container.py", "container_files.py")


def seen_outside(folder: Path) -> tuple[list[str], list[str]]:
    """What is in /opt, and what is mounted there, at /etc/hosts, or from the test's folder; others
    on this machine mount things too."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    places = ("/opt", "/etc/hosts", str(folder), folder.name)
    return sorted(os.listdir("/opt")), [
        line for line in mounts if any(one in line for one in places)
    ]


def plan(folder: Path, *command: str) -> LaunchPlan:
    base = folder / "ml"
    (base / "model").mkdir(parents=True, exist_ok=True)
    (base / "code").mkdir(exist_ok=True)
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
        command=command,
        environment={"PATH": "/usr/bin:/bin"},
        folder=folder,
        log=folder / "log",
        log_bytes=2**20,
        base=base,
    )


async def say(given: LaunchPlan) -> list[str]:
    process = await ProcessLauncher(walls=frozenset({Wall.FILES})).start(given)
    assert await process.wait() == 0, process.last_lines()
    return process.last_lines()


@may_mount
async def test_it_is_the_containers_own_folder(tmp_path: Path) -> None:
    before = seen_outside(tmp_path)
    elsewhere = tmp_path / "artifacts"
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("in the cache")
    given = plan(tmp_path, "sh", "-c", "ls /opt; cat /opt/ml/linked/weights; echo 1 > /opt/ml/out")
    assert given.base is not None
    (given.base / "linked").symlink_to(elsewhere)
    listed = await say(given)
    assert listed[-1] == "in the cache"
    assert listed[:-1] == sorted({*before[0], "ml"})
    written = given.base / "out"
    assert (written.read_text(), written.stat().st_uid) == ("1\n", os.getuid())
    assert before == seen_outside(tmp_path)


@may_mount
async def test_it_starts_there_if_its_working_folder_is_in_it(tmp_path: Path) -> None:
    given = plan(tmp_path, "pwd")
    assert given.base is not None
    assert await say(replace(given, folder=given.base / "code")) == ["/opt/ml/code"]
    assert await say(replace(given, folder=given.base)) == ["/opt/ml"]
    assert await say(given) == [str(tmp_path)]


@may_mount
async def test_two_containers_have_two(tmp_path: Path) -> None:
    said = []
    for name in ("a", "b"):
        given = plan(tmp_path / name, "sh", "-c", "cat /opt/ml/name")
        assert given.base is not None
        (given.base / "name").write_text(name)
        said.append(asyncio.create_task(say(given)))
    assert await asyncio.gather(*said) == [["a"], ["b"]]


@may_mount
async def test_it_may_see_other_hosts_than_the_machine(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.77.8.9 algo-1\n")
    before = seen_outside(tmp_path)
    given = plan(tmp_path, "sh", "-c", "cat /etc/hosts; getent hosts algo-1")
    said = await say(replace(given, hosts=hosts))
    assert (said[0], said[1].split()) == ("127.77.8.9 algo-1", ["127.77.8.9", "algo-1"])
    assert before == seen_outside(tmp_path)


@may_mount
async def test_what_is_hidden_is_not_seen_and_all_else_is(tmp_path: Path) -> None:
    script = "ls -A; cat ml/model/weights link; touch own 2>/dev/null || echo ' and read-only'"
    given = plan(tmp_path, "sh", "-c", script)
    for name in ("secret", "other", "folder/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("other")
    assert given.base is not None
    (given.base / "model" / "weights").write_text("weights\n")
    said = await say(
        replace(given, view=View(hidden=(tmp_path / "secret", tmp_path / "not-there")))
    )
    assert said == [
        "folder",
        "link",
        "log",
        "log.times",
        "ml",
        "other",
        "weights",
        "other and read-only",
    ]
    assert (tmp_path / "secret").read_text() == "secret"


async def test_without_it_a_container_starts_as_ever(tmp_path: Path) -> None:
    process = await ProcessLauncher().start(plan(tmp_path, "sh", "-c", "test ! -e /opt/ml/model"))
    assert await process.wait() == 0
    assert ProcessLauncher().container_base(tmp_path) == tmp_path
    assert ProcessLauncher(walls=frozenset({Wall.FILES})).container_base(tmp_path) == OPT_ML


@may_mount
async def test_a_base_that_is_gone_is_said_to_be_the_reason(tmp_path: Path) -> None:
    given = replace(plan(tmp_path, "true"), base=tmp_path / "gone")
    with pytest.raises(CannotStart, match=r"^true: No such file .* \(mounting its /opt/ml\)$"):
        await ProcessLauncher(walls=frozenset({Wall.FILES})).start(given)


AS_ANOTHER_USER = """
import os, subprocess, sys
program, base, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setgid(user); os.setuid(user)
reader, writer = os.pipe()
script = 'id -u; id -g; stat -c %u /opt/ml; echo 1 > /opt/ml/out; grep CapEff /proc/self/status'
command = [sys.executable, "-ISs", program, str(os.getpid()), str(writer)]
command += [f"base={base}/ml", f"hosts={base}/hosts", f"cover={base}//secret"]
command += [f"private={base}/logs//{base}/ml/logs//", f"private={base}/closed//{base}/ml/closed//"]
command += ["--"]
script += f'; cd {base}/logs; ls -A . nginx; echo 1 > nginx/access.log; echo 1 > {base}/closed/log'
script += f'; cat /etc/hosts; ls {base}; test ! -w {base} && echo hidden'
process = subprocess.Popen([*command, "sh", "-c", script], pass_fds=(writer,))
os.close(writer)
print(os.read(reader, 64).decode(), process.wait())
"""


@may_mount
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_who_is_not_root_has_it_too_and_no_more_rights_than_before() -> None:
    # In a folder that others may reach, unlike tmp_path, and with an interpreter that they may.
    base = Path(tempfile.mkdtemp(prefix="sagehen-mounts-", dir="/tmp"))
    (base / "ml").mkdir()
    (base / "hosts").write_text("127.77.0.1 algo-1\n")
    (base / "secret").write_text("secret")
    (base / "logs" / "nginx").mkdir(parents=True)
    (base / "logs" / "nginx" / "access.log").write_text("of the machine")
    (base / "closed").mkdir(mode=0o700)
    program = base / "become_container.py"
    for module in (become_container, container_files):
        shutil.copy(module.__file__, base)
    for path in (base, base / "ml"):
        os.chown(path, NOBODY, NOBODY)
    try:
        ran = subprocess.run(
            ["/usr/bin/python3", "-c", AS_ANOTHER_USER, str(program), str(base), str(NOBODY)],
            # Not the tests' own, which may be closed to others: a container starts in its folder.
            cwd=base,
            capture_output=True,
            text=True,
            check=False,
        )
        said = ran.stdout.split()
        rights = [*(["65534"] * 3), "CapEff:", "0" * 16]
        logs = [".:", "nginx", "nginx:"]
        listed = sorted(["__pycache__", *PROGRAMS, "closed", "hosts", "logs", "ml"])
        seen = ["127.77.0.1", "algo-1", *listed, "hidden", "0"]
        assert said == [*rights, *logs, *seen], ran.stderr
        assert (base / "ml" / "logs" / "nginx" / "access.log").read_text() == "1\n"
        assert (base / "ml" / "closed" / "log").stat().st_uid == NOBODY
        assert not os.listdir(base / "closed")
        assert (base / "ml" / "out").stat().st_uid == NOBODY
    finally:
        shutil.rmtree(base)


@may_mount
async def test_the_kernel_still_ends_it_with_its_agent(tmp_path: Path) -> None:
    base = plan(tmp_path).base
    agent = f"""
import os, subprocess, sys
reader, writer = os.pipe()
command = [sys.executable, "-ISs", {become_container.__file__!r}, str(os.getpid()), str(writer)]
command += ["base={base}", "--", "sleep", "1000"]
process = subprocess.Popen(command, pass_fds=(writer,))
os.close(writer)
os.read(reader, 64)
print(process.pid, flush=True)
sys.stdin.read()
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", agent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    container = os.pidfd_open(int(await process.stdout.readline()))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(container, ended.set)
    try:
        assert not ended.is_set()
        process.send_signal(signal.SIGKILL)
        await asyncio.wait_for(ended.wait(), 60)
    finally:
        asyncio.get_running_loop().remove_reader(container)
        os.close(container)
        await process.wait()
