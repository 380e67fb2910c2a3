"""`sagehen stop` and `sagehen reload`: signals to the server of a home."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated

import typer

from sagehen.base.config import load_settings
from sagehen.base.errors import Invalid, Unavailable
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, out, plain_errors

__all__ = ["reload_settings", "stop"]


def stop(
    wait: Annotated[bool, typer.Option(help="Return when the server has ended.")] = True,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Stop a server: accepted requests are finished first; a second time, it ends at once."""
    with plain_errors(), _signalled(home, config, signal.SIGTERM) as (lock, pid):
        out.print(f"The server with process id {pid} is stopping.", markup=False)
        if wait:
            fcntl.flock(lock, fcntl.LOCK_SH)
            out.print("Stopped.")


def reload_settings(home: HomeOption = None, config: ConfigOption = None) -> None:
    """Have a server read its settings again. Calls and instances go on. The server prints what
    takes effect now, and what only does when it starts again."""
    with plain_errors(), _signalled(home, config, signal.SIGUSR2) as (_, pid):
        out.print(f"The server with process id {pid} reads its settings again.", markup=False)


@contextmanager
def _signalled(
    home: Path | None, config: Path | None, number: signal.Signals
) -> Iterator[tuple[IO[str], int]]:
    """Sends a signal to the server of a home; gives the file of its lock, and its process id."""
    server_home = Home(load_settings(config, home=home).home)
    try:
        lock = server_home.lock.open("r+")
    except FileNotFoundError:
        raise _not_running(server_home) from None
    except PermissionError as error:
        raise Invalid(
            f"The home {server_home.path} is another user's: run this as that user."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            # Only the process that holds the lock gets a signal: the id that a killed server
            # has left may be another program's by now.
            pid = _send_signal(server_home, lock.read().strip(), number)
        else:
            raise _not_running(server_home)
        yield lock, pid


def _send_signal(home: Home, pid: str, number: signal.Signals) -> int:
    if not home.address.exists():
        raise Unavailable(
            f"The process with id {pid or 'unknown'} uses the home {home.path}, but serves nothing "
            f"now: it starts, stops, or restores a backup. To end it: kill {pid}"
        )
    try:
        if number != signal.SIGTERM and not _catches(int(pid), number):
            raise Invalid(
                f"The server with process id {pid} cannot reload: it is a demo, or of an earlier "
                "version. Stop it and start it again for its new settings to take effect."
            )
        os.kill(int(pid), number)
    except (ValueError, ProcessLookupError) as error:
        raise Unavailable(
            f"The home {home.path} is in use, but by no process that can be seen from here (id "
            f"{pid or 'unknown'}). Stop it in its container, or on its machine."
        ) from error
    except PermissionError as error:
        raise Invalid(
            f"The server with process id {pid} is another user's. Stop it as that user."
        ) from error
    return int(pid)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Returns whether a process has a handler for the signal, which would end it otherwise; True
    where the kernel does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return True


def _not_running(home: Home) -> Unavailable:
    return Unavailable(f"No server runs with the home {home.path}.")
