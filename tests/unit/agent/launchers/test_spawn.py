"""The end of a main process, and what its first program is told; without any process."""

import asyncio
import os

import pytest

from sagehen.agent.launchers import spawn as module
from sagehen.agent.launchers.spawn import watch_end


class FakeProcess:
    """Ends when the other end of a pipe is closed."""

    def __init__(self) -> None:
        self.pid = 1
        self.init_pid = None
        self.waited = 0
        self.given_up = False

    def wait_for_init(self) -> None:
        pass

    def give_up(self) -> None:
        self.given_up = True

    def wait(self) -> int:
        self.waited += 1
        return 7


async def test_the_callback_runs_before_the_process_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(os, "pidfd_open", lambda pid: reader)
    process, waited = FakeProcess(), []
    ended = watch_end(process, lambda: waited.append(process.waited))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not ended.done()
    os.close(writer)
    assert await ended == 7
    assert waited == [0], "its PID may be another's afterwards"


async def test_a_process_that_cannot_be_watched_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(pid: int) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "pidfd_open", full)
    process = FakeProcess()
    with pytest.raises(OSError, match="too many open files"):
        watch_end(process, lambda: None)  # type: ignore[arg-type]
    assert process.given_up


async def test_what_a_program_reports_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    text = bytearray()
    reading = asyncio.create_task(module.read_report(reader, text))
    for part in (b"failed 13", b" mount\n"):
        os.write(writer, part)
        await asyncio.sleep(0)
    os.close(writer)
    await reading
    assert text == b"failed 13 mount\n"


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (b"", None),
        (b"started 7 8\n", None),
        (b"started 7 8\nfailed 2 \n", "[Errno 2] No such file or directory"),
        (b"failed 1 mount\n", "[Errno 1] Operation not permitted (mounting its /opt/ml)"),
        (b"failed 1 new\n", "[Errno 1] Operation not permitted (new)"),
    ],
)
def test_a_failure_is_told_with_its_step(report: bytes, message: str | None) -> None:
    error = module.failure_in(bytearray(report))
    assert (None if error is None else str(error)) == message
