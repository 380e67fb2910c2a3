"""The file that says why a container ended."""

from pathlib import Path

import pytest

from sagehen.frame.container_specs import read_end, write_end


@pytest.mark.parametrize("reason", ["Out of memory: 2 GiB.", None])
def test_a_run_finds_its_own_end(tmp_path: Path, reason: str | None) -> None:
    write_end(tmp_path / "i-1.end", "run-2", reason)
    assert read_end(tmp_path / "i-1.end", "run-2") == (reason or "")
    assert read_end(tmp_path / "i-1.end", "run-1") is None


def test_no_file_is_no_end(tmp_path: Path) -> None:
    assert read_end(tmp_path / "i-1.end", "run-1") is None
