"""Containers with every wall up: what they see of the machine, and how they end."""

import asyncio
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import psutil
import pytest

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.limits import Limits
from sagehen.agent.launchers import spawn, walls
from sagehen.agent.launchers.launcher import LaunchPlan, View
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.process import ContainerProcess, ProcessLauncher
from sagehen.agent.launchers.walls import (
    NO_WALLS,
    Wall,
    Walls,
    show_named,
    unseen_file,
    view_environment,
    view_options,
)
from support.mounts import may_mount

ALL = frozenset(Wall)


def plan(folder: Path, *command: str, name: str = "primary") -> LaunchPlan:
    own = folder / name
    (own / "ml").mkdir(parents=True, exist_ok=True)
    return LaunchPlan(
        instance_id="i-1",
        name=name,
        command=command,
        environment={"PATH": "/usr/sbin:/usr/bin:/bin", "MINE": "1"},
        folder=own,
        log=own / "log",
        log_bytes=2**20,
        base=own / "ml",
        own_folder=own,
        view=View(hidden=(folder / "secret", *(folder / name for name in ("one", "two")))),
    )


async def start(given: LaunchPlan) -> ContainerProcess:
    return await ProcessLauncher(walls=ALL).start(given)


async def say(given: LaunchPlan) -> list[str]:
    process = await start(given)
    assert await process.wait() == 0, process.last_lines()
    return process.last_lines()


@may_mount
async def test_two_containers_may_write_the_same_paths(tmp_path: Path) -> None:
    script = "echo $0 > /tmp/model.txt; echo $0 > /run/model.pid; cat /tmp/model.txt /run/model.pid"
    plans = [plan(tmp_path, "sh", "-c", script, name, name=name) for name in ("one", "two")]
    said = await asyncio.gather(*map(say, plans))
    assert said == [["one", "one"], ["two", "two"]]
    assert "model.txt" not in os.listdir("/tmp")
    assert (tmp_path / "one" / "tmp" / "model.txt").read_text() == "one\n"


@may_mount
async def test_logs_are_its_own_in_the_folders_that_the_machine_has(tmp_path: Path) -> None:
    """Entry points of images link /var/log/nginx/access.log to /dev/stdout, as root everyone's."""
    script = "touch /var/log/$0.log /run/lock/$0; cd /var/log; find . -type f; find . -type d"
    plans = [plan(tmp_path, "sh", "-c", script, name, name=name) for name in ("one", "two")]
    folders = [
        f"./{entry.name}" for entry in os.scandir("/var/log") if entry.is_dir(follow_symlinks=False)
    ]
    for (file, *found), name in zip(
        await asyncio.gather(*map(say, plans)), ("one", "two"), strict=True
    ):
        assert file == f"./{name}.log"
        assert sorted(found) == sorted([".", *folders])
    assert not {"one.log", "two.log"} & set(os.listdir("/var/log"))


def test_folders_that_the_machine_lacks_are_not_made(tmp_path: Path, monkeypatch) -> None:
    folders = {"/var/log": ("var-log", None), str(tmp_path / "not-there"): ("not-there", None)}
    monkeypatch.setattr(walls, "PRIVATE_FOLDERS", folders)
    options = list(view_options(plan(tmp_path, "true"), ALL))
    own = tmp_path / "primary" / "var-log"
    assert [one for one in options if one.startswith("private=")] == [f"private=/var/log//{own}//"]


@may_mount
async def test_changes_to_etc_are_the_containers_own(tmp_path: Path) -> None:
    script = "ls /etc/passwd; cat /etc/sagehen-test; echo 1 > /etc/sagehen-test; ls -d /etc/sage*"
    process = await start(plan(tmp_path, "sh", "-c", script))
    assert await process.wait() == 0
    assert process.last_lines()[0] == "/etc/passwd"
    assert process.last_lines()[-1] == "/etc/sagehen-test"
    assert "sagehen-test" not in os.listdir("/etc")


@may_mount
async def test_it_sees_no_process_but_its_own_and_has_its_own_ipc(tmp_path: Path) -> None:
    script = f"ls -d /proc/[0-9]*; test ! -e /proc/{os.getpid()}; readlink /proc/self/ns/ipc"
    said = await say(plan(tmp_path, "sh", "-c", script))
    assert said[:2] == ["/proc/1", "/proc/2"]
    assert said[-1] != os.readlink("/proc/self/ns/ipc")


@may_mount
async def test_shared_memory_is_half_of_its_limit(tmp_path: Path) -> None:
    given = plan(tmp_path, "stat", "-f", "-c", "%b %S", "/dev/shm")
    blocks, size = (await say(replace(given, limits=Limits(memory_bytes=2**26))))[0].split()
    assert int(blocks) * int(size) == 2**25


@may_mount
async def test_what_is_shown_is_seen_below_a_private_folder_and_can_be_written(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "here").write_text("seen\n")
    given = plan(tmp_path, "sh", "-c", f"cat {folder}/here; echo 1 > {folder}/written; ls {folder}")
    view = replace(given.view, shown=(folder, tmp_path / "not-there"))
    assert await say(replace(given, view=view)) == ["seen", "here", "written"]
    assert (folder / "written").exists()


@may_mount
async def test_folders_of_keys_are_empty(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id_rsa").write_text("private")
    given = plan(tmp_path, "sh", "-c", f"ls -A {keys}; touch {keys}/new 2>&1 || echo read-only")
    view = replace(given.view, emptied=(keys,), shown=(keys,))
    assert "id_rsa" in await say(replace(given, view=view)), "the user's word comes last"
    said = await say(replace(given, view=replace(given.view, emptied=(keys, tmp_path / "none"))))
    assert said[-1] == "read-only"
    assert "id_rsa" not in said


@may_mount
async def test_it_cannot_take_the_walls_down(tmp_path: Path) -> None:
    script = (
        "umount /tmp && echo down; mount -t tmpfs none /mnt && echo up; mknod d b 8 0 && echo d"
    )
    process = await start(plan(tmp_path, "sh", "-c", script))
    assert await process.wait() != 0
    assert not {"down", "up", "d"} & set(process.last_lines())


@may_mount
@pytest.mark.skipif(os.getuid() != 0, reason="others cannot read raw disks anyway")
async def test_root_sees_no_raw_disk(tmp_path: Path) -> None:
    script = "for file in /dev/*; do test ! -b $file || echo $file; done"
    assert await say(plan(tmp_path, "sh", "-c", script)) == []


@may_mount
@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 3", 3), ("kill -KILL $$", -9), ("kill -SEGV $$", -11), ("kill -TERM $$", -15)],
)
async def test_its_end_is_told_as_it_was(tmp_path: Path, script: str, status: int) -> None:
    process = await start(plan(tmp_path, "sh", "-c", script))
    assert await process.wait() == status
    assert process.ended_because is None


@may_mount
async def test_it_is_asked_to_end_and_may_choose_its_status(tmp_path: Path) -> None:
    for script, status in (
        ("trap 'exit 7' TERM; echo ready; sleep 1000 & wait", 7),
        ("echo ready; sleep 1000", -15),
    ):
        process = await start(plan(tmp_path, "sh", "-c", script))
        while process.last_lines() != ["ready"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        process.terminate()
        assert await process.wait() == status


@may_mount
async def test_its_end_is_the_end_of_all_in_it(tmp_path: Path) -> None:
    """Also of daemons, without a cgroup; and nobody is left to be waited for."""
    script = "setsid sleep 1004 & setsid setsid sleep 1004 & echo ready; wait"
    process = await start(plan(tmp_path, "sh", "-c", script))
    while process.last_lines() != ["ready"]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    main = psutil.Process(process.pid)
    others = main.children(recursive=True)
    assert await process.listening_ports() == []
    assert await process.memory_bytes() > 0
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert not [one for one in others if one.is_running()]
    assert others_started() == []


@may_mount
async def test_what_cannot_be_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"^/nonexistent: No such file or directory$"):
        await start(plan(tmp_path, "/nonexistent"))
    assert others_started() == []


@may_mount
async def test_what_cannot_be_watched_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", full)
    with pytest.raises(CannotStart, match="Too many open files"):
        await start(plan(tmp_path, "sleep", "1000"))
    assert others_started() == []


def others_started() -> list[psutil.Process]:
    """Servers that tests share may run beside."""
    return [one for one in psutil.Process().children() if one not in _before]


_before: list[psutil.Process] = []


@pytest.fixture(autouse=True)
def before() -> None:
    _before[:] = psutil.Process().children()


AGENT = """
import asyncio, os, pathlib, sys
sys.path[:0] = {path!r}
from unit_plan import start, plan
async def main():
    process = await start(plan(pathlib.Path(sys.argv[1]), "sh", "-c", {script!r}))
    while process.last_lines() != ["ready"]:
        await asyncio.sleep(0.01)
    print(process.pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process with a container that has a daemon."""
    script = "setsid env -i setsid sleep 1005 & echo ready; sleep 1005"
    (tmp_path / "unit_plan.py").write_text(Path(__file__).read_text())
    source = AGENT.format(path=[str(tmp_path), *sys.path], script=script)
    command = [sys.executable, "-c", source, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


@may_mount
def test_nothing_in_it_outlives_the_agent(agent: "subprocess.Popen[bytes]") -> None:
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    deadline = time.monotonic() + 60
    while len(family := psutil.Process(agent.pid).children(recursive=True)) < 4:
        assert time.monotonic() < deadline, "init, the shell, its sleep and the daemon"
    assert pid in {one.pid for one in family}
    agent.kill()
    _, left = psutil.wait_procs(family, timeout=60)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]


async def test_while_one_starts_no_child_is_taken_for_an_orphan(monkeypatch) -> None:
    orphans = Orphans()
    monkeypatch.setattr(orphans, "_adopts", True)
    child = await asyncio.create_subprocess_exec("sleep", "1000")
    with orphans.starting():
        orphans.end()
        assert child.returncode is None
        assert psutil.Process(child.pid).is_running()
        orphans.expect(child.pid)
    orphans.end()
    assert psutil.Process(child.pid).is_running()
    child.kill()
    await child.wait()


@may_mount
async def test_unix_sockets_fit_into_its_folder_for_temporary_files(tmp_path: Path) -> None:
    """PyTriton and multiprocessing make sockets there; a home's path may be long."""
    given = plan(tmp_path / ("long" * 20), "sh", "-c", "touch $TMPDIR/made; echo $TMPDIR")
    assert given.own_folder is not None
    own = given.own_folder / "tmp"
    environment = given.environment | {"TMPDIR": str(own)}
    assert await say(replace(given, environment=environment)) == ["/tmp"]
    assert (own / "made").exists()
    chosen = given.environment | {"TMPDIR": "/var/tmp"}
    assert await say(replace(given, environment=chosen)) == ["/var/tmp"]


def test_temporary_files_stay_in_its_folder_if_it_has_no_tmp_of_its_own(tmp_path: Path) -> None:
    given = plan(tmp_path, "true")
    assert given.own_folder is not None
    given = replace(given, environment={"TMPDIR": str(given.own_folder / "tmp")})
    shown = replace(given, view=View(shown=(Path("/tmp"),)))
    for one, up in ((given, NO_WALLS), (shown, ALL)):
        assert view_environment(one, up) == given.environment
    assert view_environment(given, ALL) == {"TMPDIR": "/tmp"}


def test_without_the_wall_of_files_no_other_stands(tmp_path: Path) -> None:
    given = plan(tmp_path, "true")
    assert list(view_options(given, frozenset({Wall.PROCESSES, Wall.ETC}))) == []
    assert "processes=own" not in view_options(given, frozenset({Wall.FILES}))
    assert "processes=own" in view_options(given, ALL)


@pytest.fixture
def machine_folder() -> Iterator[Path]:
    """A folder with a space and a non-ASCII letter, below the machine's /tmp."""
    with TemporaryDirectory(prefix="sagehen räume ", dir="/tmp") as folder:
        yield Path(folder)


def named_by(given: LaunchPlan) -> tuple[Path, ...]:
    return show_named(given).view.named


def test_named_programs_bring_their_folders(tmp_path: Path, machine_folder: Path) -> None:
    for name in ("bin/python", "code/serve.py", "code/lib/more.py", "data/one.csv"):
        (machine_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (machine_folder / name).touch()
    (machine_folder / "current").symlink_to("code")
    script = machine_folder / "code" / "serve.py"
    given = plan(tmp_path, "python3", str(script), "/tmp/not-there", "/usr/bin/env", "code/x")
    assert named_by(given) == (machine_folder / "code",)
    more = (str(machine_folder / "code/lib/more.py"), str(machine_folder / "data"))
    given = replace(given, command=(*given.command, *more))
    assert named_by(given) == (machine_folder / "code", machine_folder / "data")
    by_link = replace(given, command=(str(machine_folder / "current" / "serve.py"),))
    assert named_by(by_link) == (machine_folder / "code", machine_folder / "current")
    program = replace(given, command=(str(machine_folder / "bin" / "python"), str(script)))
    assert named_by(program) == (machine_folder,)
    assert named_by(replace(given, view=View(shown=(Path("/tmp"),)))) == ()
    text = f"cc {shlex.quote(str(script))}; exec > /tmp/log; exec '/tmp/serve"
    for ending in ("'", ""):
        in_shell = replace(given, command=("sh", "-c", text + ending))
        assert named_by(in_shell) == ((machine_folder / "code",) if ending else ())


@pytest.mark.parametrize(
    "text",
    [
        "mkdir -p {0}/own && exec {0}/code/serve --cache {0}/own/cache",
        "exec {0}/code/serve 2>> {0}/own/log",
        "mkdir -p {0}/own\n{0}/code/serve",
    ],
)
def test_what_a_shell_makes_itself_is_the_containers_own(
    tmp_path: Path, machine_folder: Path, text: str
) -> None:
    """Though a run by hand has left it on the machine."""
    (machine_folder / "own" / "cache").mkdir(parents=True)
    (machine_folder / "code").mkdir()
    for name in ("own/log", "code/serve"):
        (machine_folder / name).touch()
    in_shell = plan(tmp_path, "sh", "-c", text.format(shlex.quote(str(machine_folder))))
    assert named_by(in_shell) == (machine_folder / "code",)


def test_what_a_shell_names_in_the_containers_folders_is_not_refused(
    tmp_path: Path, machine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /run and /var/log, where the machine's servers have such files, too."""
    monkeypatch.setattr(walls, "NAMED_FOLDERS", ())
    (machine_folder / "server.pid").touch()
    pid = shlex.quote(str(machine_folder / "server.pid"))
    in_shell = plan(tmp_path, "sh", "-c", f"exec serve --pid {pid}")
    assert (named_by(in_shell), unseen_file(in_shell)) == ((), None)


def test_not_all_of_tmp_is_named(tmp_path: Path) -> None:
    with NamedTemporaryFile(dir="/tmp", suffix=".py") as script:
        given = plan(tmp_path, "python3", script.name, "/tmp")
        assert named_by(given) == (Path(script.name),)
    assert named_by(plan(tmp_path, "echo", "/tmp/" + "no file has such a name" * 20)) == ()


def test_named_socket_is_the_containers_own(tmp_path: Path, machine_folder: Path) -> None:
    path = machine_folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        given = plan(tmp_path, "serve", str(path))
    assert named_by(given) == ()
    assert unseen_file(given) is None


@may_mount
async def test_named_folder_is_read_only(tmp_path: Path, machine_folder: Path) -> None:
    (machine_folder / "serve.sh").write_text('. "${0%/*}/more.sh"; touch "$0" || echo read-only')
    (machine_folder / "more.sh").write_text("echo more")
    assert await say(plan(tmp_path, "sh", str(machine_folder / "serve.sh"))) == [
        "more",
        f"touch: cannot touch '{machine_folder}/serve.sh': Read-only file system",
        "read-only",
    ]


@may_mount
async def test_named_folder_with_the_home_in_it_shows_no_secrets(
    tmp_path: Path, machine_folder: Path
) -> None:
    """As where a user keeps a program and, beside it, the home of the server."""
    home = machine_folder / "home"
    (home / "secret").mkdir(parents=True)
    (home / "secret" / "key").touch()
    (home / "mine").touch()
    (machine_folder / "ls.sh").write_text(f'ls {shlex.quote(str(home))}; cd "$HOME"; touch x; ls')
    given = plan(home, "sh", str(machine_folder / "ls.sh"))
    assert given.own_folder is not None
    view = replace(given.view, shown=(given.own_folder,))
    environment = {**given.environment, "HOME": str(given.own_folder / "ml")}
    said = await say(replace(given, view=view, environment=environment))
    assert said == ["mine", "primary", "x"]


@may_mount
@pytest.mark.parametrize("is_late", [False, True])
async def test_named_links_show_nothing_that_is_hidden(
    tmp_path: Path, machine_folder: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Every user of a machine may put links in /tmp, also when a name was looked at already."""
    other = tmp_path / "one"
    other.mkdir()
    (other / "key").touch()
    targets = {machine_folder / "machine": Path("/"), machine_folder / "processes": Path("/proc")}
    if is_late:  # else it is refused: below /tmp or /dev/shm, the home's files are known
        targets[machine_folder / "home"] = other

    def late_options(given: LaunchPlan, put_up: Walls) -> list[str]:
        options = list(view_options(given, put_up))
        for link, target in targets.items():
            link.rmdir()
            link.symlink_to(target)
        return options

    for link, target in targets.items():
        link.mkdir() if is_late else link.symlink_to(target)
    if is_late:
        monkeypatch.setattr(spawn, "view_options", late_options)
    looks = f'ls "$at/key" "$at/{os.getpid()}" "$at/proc/{os.getpid()}"'
    script = f"for at; do {looks} 2>/dev/null; done; echo end"
    assert await say(plan(tmp_path, "sh", "-c", script, "sh", *map(str, targets))) == ["end"]


@may_mount
async def test_programs_named_by_links_run(tmp_path: Path, machine_folder: Path) -> None:
    program = machine_folder / "versions" / "1" / "bin" / "serve"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/echo")
    (machine_folder / "current").symlink_to("versions/1")
    assert await say(plan(tmp_path, str(machine_folder / "current/bin/serve"), "runs")) == ["runs"]


@may_mount
async def test_the_home_below_tmp_may_be_named(tmp_path: Path, machine_folder: Path) -> None:
    (machine_folder / "secret").mkdir()
    (machine_folder / "mine").touch()
    given = plan(machine_folder, "ls", str(machine_folder), name="one")
    assert given.own_folder is not None
    view = replace(given.view, shown=(given.own_folder,))
    assert await say(replace(given, view=view)) == ["mine", "one"]


@may_mount
async def test_what_cannot_be_shown_is_refused_with_the_remedy(tmp_path: Path) -> None:
    given = plan(tmp_path, "sh", str(tmp_path / "secret" / "serve.sh"))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "serve.sh").touch()
    with pytest.raises(CannotStart, match=r"serve.sh is in a folder .* shared_folders"):
        await start(given)


async def test_without_files_of_their_own_a_command_runs_once_at_a_time(tmp_path: Path) -> None:
    launcher = ProcessLauncher(files_shared_because="Operation not permitted")
    given = replace(plan(tmp_path, "sleep", "1000"), is_command=True)
    first = await launcher.start(given)
    with pytest.raises(CannotStart, match=r"runs the same command.*\(Operation not permitted\)"):
        await launcher.start(given)
    other = await launcher.start(replace(given, command=("sleep", "1001")))
    servers = [await launcher.start(replace(given, is_command=False)) for _ in range(2)]
    first.kill()
    await first.wait()
    again = await launcher.start(given)
    by_choice = await ProcessLauncher().start(given)
    for process in (other, again, by_choice, *servers):
        process.kill()
        await process.wait()
