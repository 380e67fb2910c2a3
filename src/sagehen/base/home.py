"""Where things lie in the home. Nothing is written elsewhere."""

import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagehen.base.errors import HomeError

__all__ = [
    "ASIDE",
    "ATTEMPT_NAME",
    "INSTANCE_NAME",
    "RESTORING",
    "Home",
    "keeping_private",
    "locked",
    "prepare_home",
]

log = logging.getLogger(__name__)

_PRIVATE_MASK = 0o077
ASIDE = "before-restore-"
"""What the name of a folder in the home begins with that has what a backup took the place of."""

# A home may be a folder that has its own `jobs` or `logs`: what is removed is known by its name.
INSTANCE_NAME = re.compile(r"i-[0-9a-f]{17}")
"""What an instance's folders are called."""
ATTEMPT_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+")
"""What the folder of an attempt at a training job is called."""

RESTORING = ".restoring"
"""A folder in the home, and one in `objects`, in which a restore puts together what comes back."""

# The kernel's sockaddr_un holds 108 bytes with its end; our longest name below run/ takes 40.
_LONGEST_HOME_BYTES = 107 - 40


@dataclass(frozen=True)
class Home:
    """The folders and files of one server."""

    path: Path

    @property
    def objects(self) -> Path:
        """The object store's data."""
        return self.path / "objects"

    @property
    def artifacts(self) -> Path:
        """Model data fetched from the object store and unpacked, by content."""
        return self.path / "artifacts"

    @property
    def environments(self) -> Path:
        """Python environments with what models' requirements.txt name, by content."""
        return self.path / "environments"

    @property
    def instances(self) -> Path:
        """One folder per running instance: its containers' `/opt/ml`."""
        return self.path / "instances"

    @property
    def jobs(self) -> Path:
        """One folder per training job that runs: its hosts' `/opt/ml`."""
        return self.path / "jobs"

    @property
    def ended_jobs(self) -> Path:
        """A report per attempt at a training job that has ended, until control has heard of it."""
        return self.path / "jobs-ended"

    @property
    def logs(self) -> Path:
        """A file per role, `endpoints/<endpoint>/<variant>/<instance>/<container>.log` and
        `training-jobs/<job>/<host>.log`."""
        return self.path / "logs"

    def job_log(self, name: str) -> Path:
        """The folder of what all attempts at a training job log; of one that was deleted it is
        `training-jobs/<job>.<id>`."""
        return self.logs / "training-jobs" / name

    @property
    def run(self) -> Path:
        """Sockets, the lock, the route table: of use only while the server runs."""
        return self.path / "run"

    @property
    def control_socket(self) -> Path:
        return self.run / "control.sock"

    @property
    def agent_socket(self) -> Path:
        return self.run / "agent.sock"

    @property
    def routes(self) -> Path:
        """The route table: written by control, watched by every gateway."""
        return self.run / "routes.json"

    def container_end(self, instance_id: str) -> Path:
        """Why a container of that instance ended last: `domain/container_ends.py`."""
        return self.run / f"{instance_id}.end"

    @property
    def sessions(self) -> Path:
        """A file per sticky session: which instance holds it. Written by every gateway."""
        return self.run / "sessions"

    @property
    def board(self) -> Path:
        """Outstanding requests by gateway and instance: mapped into memory by every gateway."""
        return self.run / "board"

    @property
    def lock(self) -> Path:
        """Held by the supervisor for as long as it lives; holds its process id."""
        return self.run / "lock"

    @property
    def address(self) -> Path:
        """The URL that the running server answers on."""
        return self.run / "address"

    @property
    def clients(self) -> Path:
        """What AWS clients of this user read to find the server; `sagehen env` writes it."""
        return self.path / "clients"

    @property
    def reachable(self) -> Path:
        """The URLs, one a line, by which other machines reach the running server."""
        return self.run / "reachable"

    @property
    def credentials(self) -> Path:
        """The access key and its secret, mode 0600."""
        return self.path / "credentials.json"

    @property
    def token(self) -> Path:
        """What opens the own paths beside the access key, mode 0600."""
        return self.path / "token"

    @property
    def hidden(self) -> tuple[Path, ...]:
        """What no code reads that is to be alone: keys, and what has them or can be had with them.
        They need not all be there."""
        names = ("state.db", "state.db-wal", "state.db-shm", "state.db-journal", "sagehen.toml")
        aside = self.path.glob(f"{ASIDE}*")
        own = (self.credentials, self.token, self.message_key, self.objects, *aside)
        return (*own, *(self.path / name for name in names))

    @property
    def folders(self) -> tuple[Path, ...]:
        """All that a home has from its start on."""
        return (
            self.objects,
            self.artifacts,
            # Containers make it too, but not where they see the home read-only.
            self.environments,
            self.instances,
            self.jobs,
            self.ended_jobs,
            self.logs,
            self.run,
        )

    @property
    def message_key(self) -> Path:
        """The key that signs notifications, with its certificate, mode 0600."""
        return self.path / "message-key.pem"


def prepare_home(path: Path) -> Home:
    """Make the home's folders, for this user only.

    Raises:
        HomeError: it cannot be written, is not a folder, is everybody's, or its path is too long
            for sockets.
    """
    if len(os.fsencode(path)) > _LONGEST_HOME_BYTES:
        raise HomeError(
            f"The home {path} has a path of {len(os.fsencode(path))} bytes; Unix sockets in it "
            f"allow at most {_LONGEST_HOME_BYTES}. Choose a shorter one with --home."
        )
    home = Home(path)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close(home)
        for folder in home.folders:
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)
        (home.run / ".writable").touch(0o600)
    except OSError as error:
        raise HomeError(
            f"The home {path} cannot be used: {error.strerror} ({error.filename}). "
            "Choose a folder you may write to with --home or SAGEHEN_HOME."
        ) from error
    return home


@contextmanager
def keeping_private() -> Iterator[int]:
    """Have all that this process and its children make be this user's alone; the mask before."""
    before = os.umask(_PRIVATE_MASK)
    try:
        yield before
    finally:
        os.umask(before)


def _close(home: Home) -> None:
    """Keep other users out, where the folder is nothing but a home.

    Raises:
        HomeError: everybody may write there.
    """
    mode = home.path.stat().st_mode
    if mode & stat.S_ISVTX or home.path == Path("/"):
        raise HomeError(
            f"{home.path} is a folder that all users may write to. Choose a folder of the "
            "server's own with --home or SAGEHEN_HOME."
        )
    if not mode & 0o077:
        return
    if _is_nothing_else(home):
        try:
            home.path.chmod(0o700)
            return
        except OSError:
            pass  # It is another user's.
    log.warning(
        "Other users may look into the home %s, which has more in it than what Sagehen keeps or "
        "belongs to somebody else. What Sagehen writes there is for its own user only; to close "
        "the folder too: chmod 700 %s",
        home.path,
        home.path,
    )


def _is_nothing_else(home: Home) -> bool:
    """Whether a server has run here, or nothing but its settings and state is here."""
    names = {path.name for path in home.path.iterdir()}
    own = {path.name for path in (*home.hidden, *home.folders)}
    return home.credentials.name in names or names <= own


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Hold the home; the kernel lets go of it when this process ends, however it ends.

    Raises:
        HomeError: a server, or another command, holds it.
    """
    with home.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise HomeError(
                f"The home {home.path} is in use by the server with process id "
                f"{file.read().strip() or '?'}. Stop that one, or choose another home with --home."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
