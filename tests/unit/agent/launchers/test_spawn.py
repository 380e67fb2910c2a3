"""The end of a main process, and what its first program is told; without any process."""

import asyncio
import os
from pathlib import Path

import pytest

from sagehen.agent.launchers import spawn as module
from sagehen.agent.launchers.spawn import watch_end


class FakeProcess:
    """Ends when the other end of a pipe is closed."""

    def __init__(self) -> None:
        self.pid = 1
        self.waited = 0

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

    killed: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", full)
    monkeypatch.setattr(module, "kill_group", killed.append)
    process = FakeProcess()
    with pytest.raises(OSError, match="too many open files"):
        watch_end(process, lambda: None)  # type: ignore[arg-type]
    assert (killed, process.waited) == ([1], 1)


def test_hidden_paths_are_one_argument() -> None:
    assert module._hidden_argument(()) is None
    paths = [Path("/home/state.db"), Path("/home/keys")]
    assert module._hidden_argument(paths) == "/home//state.db/keys"


async def test_what_a_program_reports_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    reading = asyncio.create_task(module.read_report(reader))
    for part in (b"13", b" mount"):
        os.write(writer, part)
        await asyncio.sleep(0)
    os.close(writer)
    assert await reading == b"13 mount"
