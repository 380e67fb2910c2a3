"""The lock that holds off removals during a backup, and the ids of folders."""

from pathlib import Path

import pytest

from sagehen.base.errors import BackupError, StateError
from sagehen.state.pairing import folder_id, may_remove, removals_held_off, write_id


def test_nothing_is_removed_for_good_during_a_backup(tmp_path: Path) -> None:
    with removals_held_off(tmp_path), may_remove(tmp_path) as allowed:
        assert not allowed
    with may_remove(tmp_path) as allowed:
        assert allowed


def test_removals_share_the_lock_and_a_backup_waits_for_them(tmp_path: Path) -> None:
    with (
        may_remove(tmp_path) as first,
        may_remove(tmp_path) as second,
        pytest.raises(BackupError, match="without a pause"),
        removals_held_off(tmp_path, wait_seconds=0),
    ):
        raise AssertionError
    assert (first, second) == (True, True)


def test_a_folder_has_the_id_that_was_written(tmp_path: Path) -> None:
    assert folder_id(tmp_path) is None
    write_id(tmp_path, "0" * 32)
    assert folder_id(tmp_path) == "0" * 32
    write_id(tmp_path, "1" * 32, "adopted")
    assert folder_id(tmp_path) == "1" * 32


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 32])
def test_a_damaged_id_is_an_error_with_advice(tmp_path: Path, content: bytes) -> None:
    write_id(tmp_path, "0" * 32)
    (tmp_path / "blobs" / "id").write_bytes(content)
    with pytest.raises(StateError, match="Remove that file"):
        folder_id(tmp_path)
