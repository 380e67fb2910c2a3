"""What the command line says of errors."""

import errno
import os

import pytest
import typer

from sagehen.base.terminal import plain_errors


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str], code: int) -> None:
    with pytest.raises(typer.Exit) as ended, plain_errors():
        raise OSError(code, os.strerror(code), "/home/objects/blobs/id.new")
    assert ended.value.exit_code == 1
    assert "disk is full" in (said := capsys.readouterr().err)
    assert "/home/objects/blobs/id.new" in said


def test_other_errors_of_the_system_are_not_hidden() -> None:
    with pytest.raises(PermissionError), plain_errors():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
