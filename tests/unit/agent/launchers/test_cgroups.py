"""On a real tree of cgroups where this machine lets us make some, else on plain folders."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.launchers import cgroups
from sagehen.agent.launchers import cgroups as own_cgroup
from sagehen.agent.launchers.cgroups import Cgroups, open_cgroups

LIMITS = Limits(memory_bytes=2**28, processes=50, cpus=2, vcpus=4)


def plain(folder: Path, controllers: str) -> Path:
    """A folder with the files that a cgroup has."""
    folder.mkdir(parents=True)
    for name in ("cgroup.procs", "cgroup.kill", "cgroup.type"):
        (folder / name).touch()
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The folders of one instance with one container."""
    home = plain(tmp_path / "home", "cpu memory pids hugetlb")
    instance = plain(home / "i-1", "")
    container = plain(instance / "primary", "")
    for group, names in {
        instance: ("memory.max", "pids.max", "cpu.max", "cpu.weight"),
        container: ("memory.oom.group",),
    }.items():
        for name in names:
            (group / name).touch()
    return home


def test_the_instance_has_the_limits_and_the_container_ends_as_one(tree: Path) -> None:
    group = Cgroups(tree).make("i-1", "primary", LIMITS)
    said = {path.name: path.read_text() for path in (tree / "i-1").iterdir() if path.is_file()}
    assert said["memory.max"] == str(2**28)
    assert said["pids.max"] == "50"
    assert said["cpu.max"] == "200000 100000"
    assert said["cpu.weight"] == "200"
    assert (tree / "i-1" / "primary" / "memory.oom.group").read_text() == "1"
    assert group.procs == tree / "i-1" / "primary" / "cgroup.procs"
    assert group.enforced == {InstanceLimit.MEMORY, InstanceLimit.PROCESSES, InstanceLimit.CPU}
    group.kill()
    assert (tree / "i-1" / "primary" / "cgroup.kill").read_text() == "1"


def test_no_limit_is_said_too(tree: Path) -> None:
    (tree / "i-1" / "memory.max").write_text("1000")
    Cgroups(tree).make("i-1", "primary", Limits())
    assert (tree / "i-1" / "memory.max").read_text().startswith("max")
    assert (tree / "i-1" / "cpu.max").read_text() == "max 100000"


def test_hits_are_those_since_it_was_made(tree: Path) -> None:
    instance, container = tree / "i-1", tree / "i-1" / "primary"
    (container / "memory.events").write_text("low 0\noom 3\noom_kill 4\noom_group_kill 1\n")
    (instance / "cpu.stat").write_text("usage_usec 5\nnr_throttled 2\n")
    group = Cgroups(tree).make("i-1", "primary", LIMITS)
    assert set(group.hits().values()) == {0}
    (container / "memory.events").write_text("low 0\noom 5\noom_kill 9\noom_group_kill 2\n")
    (instance / "pids.events").write_text("max 7\n")
    (instance / "cpu.stat").write_text("usage_usec 5\nnr_throttled 12\n")
    assert group.hits() == {
        InstanceLimit.MEMORY: 1,
        InstanceLimit.PROCESSES: 7,
        InstanceLimit.CPU: 10,
    }


def test_memory_is_what_processes_hold_and_not_what_they_have_read(tree: Path) -> None:
    group = Cgroups(tree).make("i-1", "primary", LIMITS)
    assert group.memory_bytes() is None
    (tree / "i-1" / "primary" / "memory.stat").write_text("anon 7\nfile 900\nfile_mapped 2\n")
    assert group.memory_bytes() == 9


def test_what_the_kernel_has_no_controller_for_is_left_to_others(tree: Path) -> None:
    (tree / "cgroup.subtree_control").write_text("pids")
    group = Cgroups(tree).make("i-1", "primary", LIMITS)
    assert group.enforced == {InstanceLimit.PROCESSES}
    assert (tree / "i-1" / "memory.max").read_text() == ""


def test_a_group_with_processes_of_others_is_left_alone(tmp_path: Path, monkeypatch) -> None:
    base = plain(tmp_path / "base", "memory")
    (base / "cgroup.procs").write_text(f"{2**22}\n")
    monkeypatch.setattr(cgroups, "find_base", lambda: base)
    monkeypatch.setattr(cgroups, "try_joining", lambda group: None)
    assert open_cgroups(tmp_path) is None
    assert not (base / own_cgroup.PLATFORM).exists()


def test_where_there_are_none_there_are_none(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cgroups, "find_base", lambda: None)
    assert open_cgroups(tmp_path) is None


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cgroups]:
    opened = open_cgroups(tmp_path)
    if opened is None:
        pytest.skip("this machine lets us make no cgroups")
    yield opened
    opened.close()


def test_who_gets_away_from_its_session_is_ended_with_its_group(real: Cgroups) -> None:
    group = real.make("i-1", "primary", LIMITS)
    script = f"echo $$ > {group.procs}; setsid sleep 1000 & setsid setsid sleep 1000 & wait"
    process = subprocess.Popen(["/bin/sh", "-c", script])
    deadline = time.monotonic() + 120
    while len(group.procs.read_text().split()) < 3:
        assert time.monotonic() < deadline
    group.kill()
    assert process.wait(120) == -9
    group.remove()
    assert not group.procs.exists()


def test_what_an_earlier_agent_left_is_cleared(real: Cgroups, tmp_path: Path) -> None:
    group = real.make("i-1", "primary", LIMITS)
    script = f"echo $$ > {group.procs}; exec sleep 1000"
    process = subprocess.Popen(["/bin/sh", "-c", script])
    deadline = time.monotonic() + 120
    while not group.procs.read_text():
        assert time.monotonic() < deadline
    assert open_cgroups(tmp_path) is not None
    assert process.wait(120) == -9
    assert not group.procs.exists()


def test_a_group_is_gone_with_its_instance(real: Cgroups) -> None:
    one, other = (real.make("i-2", name, Limits()) for name in ("one", "other"))
    one.remove()
    assert not one.procs.exists()
    assert other.procs.exists()
    other.remove()
    assert not other.procs.parent.parent.exists()
