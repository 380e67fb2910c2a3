"""Runs the script, relaying its errors and signals.

By system calls only: importing `subprocess` takes longer than many a script.
"""

import contextlib
import errno
import os
import select
import signal
from collections.abc import Mapping

from sagehen.containers.training_toolkit.errors import CannotRun

__all__ = ["EndedProcess", "run_command"]

TAIL_BYTES = 16 * 1024
READ_BYTES = 64 * 1024
DRAINED_BYTES = 1024 * 1024
"""after the script's end, as others may still write"""
REST_POLL_MILLISECONDS = 500
_SHELL = "/bin/bash"
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class EndedProcess:
    """How the script has ended.

    Args:
        status: 128 plus the signal's number, if any.
        errors: the end of standard error.
        signalled: a signal was passed on.
    """

    def __init__(self, status: int, errors: str, signalled: bool) -> None:
        self.status = status
        self.errors = errors
        self.signalled = signalled


def run_command(command: list[str], environ: Mapping[str, str], *, as_group: bool) -> EndedProcess:
    """Runs a command to its end.

    Args:
        as_group: signal and await the group: a shell does neither.

    Raises:
        CannotRun: the command cannot be executed.
    """
    errors, errors_end = os.pipe()
    signals = _catch_signals()
    pid = _spawn(command, environ, errors_end, as_group)
    os.close(errors_end)
    running = _Running(pid, errors, signals, as_group)
    while running.is_active():
        running.step()
    return running.finish()


class _Running:
    def __init__(self, pid: int, errors: int, signals: int, as_group: bool) -> None:
        self._pid = pid
        self._errors = errors
        self._signals = signals
        self._as_group = as_group
        self._status: int | None = None
        self._signalled = False
        self._tail = bytearray()
        self._poll = select.poll()
        self._poll.register(errors, select.POLLIN)
        self._poll.register(signals, select.POLLIN)

    def is_active(self) -> bool:
        if self._status is None:
            return True
        return self._signalled and self._as_group and _exists(self._pid)

    def step(self) -> None:
        timeout = None if self._status is None else REST_POLL_MILLISECONDS
        for descriptor, _ in self._poll.poll(timeout):
            if descriptor == self._signals:
                for number in os.read(self._signals, READ_BYTES):
                    self._on_signal(number)
            elif not self._relay():
                self._poll.unregister(self._errors)

    def finish(self) -> EndedProcess:
        os.set_blocking(self._errors, False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(DRAINED_BYTES // READ_BYTES):
                if not self._relay():
                    break
        code = os.waitstatus_to_exitcode(self._status or 0)
        errors = self._tail.decode(errors="replace")
        return EndedProcess(code if code >= 0 else 128 - code, errors, self._signalled)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number in _PASSED_ON:
            self._signalled = True
            with contextlib.suppress(ProcessLookupError):
                if self._as_group:
                    os.killpg(self._pid, number)
                elif self._status is None:
                    os.kill(self._pid, number)

    def _reap(self) -> None:
        """A container's first process inherits orphans."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status = ended[1]

    def _relay(self) -> bool:
        """Returns whether there may be more."""
        part = os.read(self._errors, READ_BYTES)
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(2, rest) :]
        self._tail += part
        del self._tail[:-TAIL_BYTES]
        return bool(part)


def _catch_signals() -> int:
    """The descriptor yields signal numbers."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_PASSED_ON):
        signal.signal(number, lambda *_: None)
    return reader


def _spawn(command: list[str], environ: Mapping[str, str], errors: int, as_group: bool) -> int:
    try:
        try:
            return _posix_spawn(command, environ, errors, as_group)
        except OSError as error:
            # Like a shell, for a script without a shebang.
            if error.errno not in (errno.ENOEXEC, errno.EACCES) or not as_group:
                raise
            return _posix_spawn([_SHELL, *command], environ, errors, as_group)
    except OSError as error:
        raise CannotRun(_explain(error, command)) from error


def _posix_spawn(
    command: list[str], environ: Mapping[str, str], errors: int, as_group: bool
) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, errors, 2)]
    if as_group:
        return os.posix_spawn(
            command[0],
            command,
            environ,
            file_actions=actions,
            setsigdef=_IGNORED_BY_PYTHON,
            setpgroup=0,
        )
    return os.posix_spawn(
        command[0], command, environ, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON
    )


def _explain(error: OSError, command: list[str]) -> str:
    if error.errno == errno.E2BIG:
        return (
            "The hyperparameters are too long to be given to a script as arguments and variables. "
            "Put what is long into a file of an input channel."
        )
    reason = error.strerror
    if error.errno == errno.ENOENT:
        reason = (
            "the program that its first line (#!) names is not there; are its line ends Windows'?"
        )
    return f"The script {command[0].removeprefix('./')!r} cannot be executed: {reason}."


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
