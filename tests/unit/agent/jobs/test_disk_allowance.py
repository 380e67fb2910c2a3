"""The disk space of a job's host."""

import os
from pathlib import Path

import pytest

from sagehen.agent.jobs import disk_allowance as module
from sagehen.agent.jobs.disk_allowance import Allowance, used_bytes
from sagehen.agent.jobs.failures import JobFailed


@pytest.fixture
def allowance(monkeypatch: pytest.MonkeyPatch) -> Allowance:
    monkeypatch.setattr(module, "GIGABYTE", 10)
    return Allowance(volume_gb=1)


def write(allowance: Allowance, *sizes: int, error: OSError | None = None) -> None:
    with allowance.charge() as add:
        for size in sizes:
            add(size)
        if error is not None:
            raise error


def test_written_bytes_are_charged(allowance: Allowance) -> None:
    with allowance.charge() as add:
        add(4)
        add(3)
    assert allowance.remaining_bytes == 3
    with allowance.charge() as add:
        add(3)
    assert allowance.remaining_bytes == 0


def test_too_much_fails_the_job_and_is_refunded(allowance: Allowance) -> None:
    with allowance.charge() as add:
        add(8)
    with pytest.raises(JobFailed, match="The input has 11 bytes, more than the 1 GB"):
        write(allowance, 1, 2)
    assert allowance.remaining_bytes == 2


def test_what_did_not_arrive_is_refunded(allowance: Allowance) -> None:
    with pytest.raises(OSError, match="away"):
        write(allowance, 5, error=OSError("away"))
    assert allowance.remaining_bytes == 10


def test_a_job_may_use_just_what_it_has(allowance: Allowance) -> None:
    allowance.check_inputs(10)
    allowance.check_used(10)
    with pytest.raises(JobFailed, match="has filled its disk: 11 bytes"):
        allowance.check_used(11)


def test_blocks_of_files_in_all_folders_count_but_not_behind_links(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "inner").mkdir(parents=True)
    empty = used_bytes(folder)
    (folder / "inner" / "data").write_bytes(os.urandom(50_000))
    assert 50_000 <= used_bytes(folder) - empty < 100_000
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data").write_bytes(os.urandom(500_000))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    assert used_bytes(folder) - empty < 100_000
    assert used_bytes(tmp_path / "missing") == 0
