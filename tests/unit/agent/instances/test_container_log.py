import os
from pathlib import Path

from sagehen.agent.instances.container_log import ContainerLog


def follow(path: Path, max_bytes: int, *parts: bytes) -> ContainerLog:
    log = ContainerLog(path, max_bytes)
    reading, writing = os.pipe()
    log.follow(reading)
    for part in parts:
        os.write(writing, part)
    os.close(writing)
    log.settle(30)
    return log


def test_what_is_printed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "primary.log"
    follow(path, 1000, b"one\n", b"two\n")
    log = follow(path, 1000, b"three\n")
    assert path.read_text() == "one\ntwo\nthree\n"
    assert log.last_lines() == ["three"]


def test_a_container_that_prints_without_end_fills_two_files_only(tmp_path: Path) -> None:
    path = tmp_path / "primary.log"
    log = follow(path, 200_000, *[b"x" * 999 + b"\n"] * 5_000, b"the end\n")
    names = ["primary.log", "primary.log.1"]
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == sorted([*names, *[f"{name}.times" for name in names]])
    for name in names:
        together = tmp_path.joinpath(name), tmp_path.joinpath(f"{name}.times")
        assert sum(file.stat().st_size for file in together) <= 200_000
    assert path.read_bytes().endswith(b"the end\n")
    assert log.last_lines()[-1] == "the end"
    assert log.rotations >= 24


def test_one_that_cannot_be_put_aside_does_not_grow_past_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "primary.log"
    (tmp_path / "primary.log.1").mkdir()
    log = follow(path, 200_000, *[b"x" * 999 + b"\n"] * 1_000)
    assert 100_000 <= path.stat().st_size <= 200_000
    assert log.rotations == 0


def test_what_cannot_be_written_is_dropped_and_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "primary.log"
    path.mkdir()
    log = follow(path, 1000, *[b"x" * 60_000] * 10, b"\nlast\n")
    assert log.last_lines()[-1] == "last"
