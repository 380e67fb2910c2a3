"""The file in which a container marks the requests that it has begun."""

import errno
import os
from contextlib import closing

import pytest

from sagehen.link.begun_marks import (
    MAX_INDEX,
    BegunMarks,
    open_begun_marker,
)

FILE_BYTES = 2 * (MAX_INDEX + 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "socket.begun-7-1"


@pytest.fixture
def marks(path):
    marks = BegunMarks(path)
    yield marks
    marks.close()


def number(index: int, generation: int = 1) -> int:
    return generation << 16 | index


def test_only_what_is_marked_has_begun(marks, path):
    marker = open_begun_marker(path.parent, marks.name)
    for index in (0, 7, MAX_INDEX):
        marker.mark(number(index, 65535))
    begun = marks.read()
    assert all(number(index, 65535) in begun for index in (0, 7, MAX_INDEX))
    assert number(1) not in begun
    # The numbers of an earlier or later request in the same place.
    assert number(7, 65534) not in begun
    assert number(7, 1) not in begun
    marker.close()


def test_full_disk_is_noticed_by_the_gateway_and_not_by_the_container(path, monkeypatch):
    """A container that touched a page without a block would be killed."""
    with closing(BegunMarks(path)):
        assert path.stat().st_blocks * 512 >= FILE_BYTES

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="No space left"):
        BegunMarks(path)
    assert not path.exists()


def test_marks_outlive_the_container_and_the_name(marks, path):
    marker = open_begun_marker(path.parent, marks.name)
    marks.unlink()
    assert not path.exists()
    marker.mark(number(3))
    marker.close()
    assert number(3) in marks.read()


@pytest.mark.parametrize("size", [0, 1, 3, 100, FILE_BYTES - 1])
def test_in_a_file_that_was_cut_every_request_has_begun(marks, path, size):
    os.truncate(path, size)
    begun = marks.read()
    assert number(0) in begun
    assert number(MAX_INDEX) in begun


def test_a_file_that_has_grown_is_read_as_far_as_it_was(marks, path):
    os.truncate(path, 2**40)
    assert number(5) not in marks.read()


def test_what_cannot_be_read_has_begun(marks):
    marks.close()
    assert number(0) in marks.read()


def test_a_second_close_closes_no_other_file(path, tmp_path):
    marks = BegunMarks(path)
    marks.close()
    with (tmp_path / "other").open("w+") as other:  # It gets the same descriptor.
        marks.close()
        other.write("still open")
        other.flush()
    assert (tmp_path / "other").read_text() == "still open"


def test_a_file_of_a_dead_gateway_with_this_pid_is_replaced(path):
    path.write_bytes(b"\1" * FILE_BYTES)
    marks = BegunMarks(path)
    assert number(0, 0x0101) not in marks.read()
    marks.close()
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "/etc/passwd", "a/b", "a\0", "x" * 201, ".hidden", "\n"]
)
def test_a_name_leads_nowhere_else(tmp_path, name):
    with pytest.raises(OSError, match="not the name"):
        open_begun_marker(tmp_path, name)


def test_a_file_of_another_kind_is_not_opened(tmp_path, path):
    path.write_bytes(b"other")
    with pytest.raises(OSError, match="size"):
        open_begun_marker(tmp_path, path.name)
    real = tmp_path / "real"
    real.write_bytes(bytes(FILE_BYTES))
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(OSError, match="symbolic links"):
        open_begun_marker(tmp_path, "link")
