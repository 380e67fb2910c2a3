"""The files and folders of a home. Nothing is written elsewhere."""

import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sagehen.base.errors import HomeError
from sagehen.base.files import make_folder

__all__ = [
    "ATTEMPT_NAME",
    "INSTANCE_NAME",
    "REPLACED_PREFIX",
    "RESTORING",
    "Home",
    "keeping_private",
    "lock_holder",
    "lock_id",
    "locked",
    "prepare_home",
]

log = logging.getLogger(__name__)

_PRIVATE_MASK = 0o077
REPLACED_PREFIX = "before-restore-"
"""prefix of folders with what a restore replaced"""

# A home may contain foreign `jobs` or `logs`: only folders with these names are removed.
INSTANCE_NAME = re.compile(r"i-[0-9a-f]{17}")
ATTEMPT_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+")

RESTORING = ".restoring"
"""folder of an unfinished restore, in the home and in `objects`"""

# The kernel's sockaddr_un holds 108 bytes with the final NUL; our longest path below the home has
# 40.
_LONGEST_HOME_BYTES = 107 - 40


@dataclass(frozen=True)
class Home:
    """The paths of one server."""

    path: Path

    @property
    def objects(self) -> Path:
        return self.path / "objects"

    @property
    def artifacts(self) -> Path:
        """Unpacked model data, by content."""
        return self.path / "artifacts"

    @property
    def environments(self) -> Path:
        """Python environments of models' requirements.txt, by content."""
        return self.path / "environments"

    @property
    def offline_results(self) -> Path:
        """Stores of results that were computed in advance, one for each variant that has some."""
        return self.path / "offline-results"

    @property
    def instances(self) -> Path:
        """A folder per running instance: its containers' `/opt/ml`."""
        return self.path / "instances"

    @property
    def jobs(self) -> Path:
        """A folder per running training job: its hosts' `/opt/ml`."""
        return self.path / "jobs"

    @property
    def ended_jobs(self) -> Path:
        """Reports of ended attempts, until control has read them."""
        return self.path / "jobs-ended"

    @property
    def logs(self) -> Path:
        """A file per role, `endpoints/<endpoint>/<variant>/<instance>/<container>.log`,
        `training-jobs/<job>/<host>.log` and `transform-jobs/<job>/<instance>.log`."""
        return self.path / "logs"

    def job_log(self, name: str) -> Path:
        """Returns the folder of a job's logs; `training-jobs/<job>.<id>` for a deleted job."""
        return self.logs / "training-jobs" / name

    def transform_log(self, name: str) -> Path:
        """Returns the folder of a transform job's logs: `<instance>.log` and
        `<instance>.data-log`, which the server writes."""
        return self.logs / "transform-jobs" / name

    @property
    def run(self) -> Path:
        """Sockets, lock and route table, for a running server only."""
        return self.path / "run"

    @property
    def control_socket(self) -> Path:
        return self.run / "control.sock"

    @property
    def ray_socket(self) -> Path:
        return self.run / "ray.sock"

    @property
    def agent_socket(self) -> Path:
        return self.run / "agent.sock"

    @property
    def routes(self) -> Path:
        return self.run / "routes.json"

    def container_end(self, instance_id: str) -> Path:
        """Says why a container last ended: see `frame/container_specs.py`."""
        return self.run / f"{instance_id}.end"

    @property
    def sessions(self) -> Path:
        """A file per sticky session with its instance, written by every gateway."""
        return self.run / "sessions"

    @property
    def inflight_table(self) -> Path:
        """All gateways' in-flight table, memory-mapped."""
        return self.run / "board"

    @property
    def lock(self) -> Path:
        """Locked by the supervisor; contains its process id."""
        return self.run / "lock"

    @property
    def address(self) -> Path:
        return self.run / "address"

    @property
    def clients(self) -> Path:
        return self.path / "clients"

    @property
    def reachable(self) -> Path:
        """The URLs for other machines, one a line."""
        return self.run / "reachable"

    @property
    def credentials(self) -> Path:
        """Has mode 0600."""
        return self.path / "credentials.json"

    @property
    def token(self) -> Path:
        """Has mode 0600."""
        return self.path / "token"

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Files that isolated code must not read; some may be missing."""
        names = ("state.db", "state.db-wal", "state.db-shm", "state.db-journal", "sagehen.toml")
        replaced = self.path.glob(f"{REPLACED_PREFIX}*")
        stores = (self.objects, self.offline_results)
        keys = (self.credentials, self.token, self.message_key, self.cluster)
        private = (*keys, *stores, *replaced)
        return (*private, *(self.path / name for name in names))

    @property
    def cluster(self) -> Path:
        """The node's certificate and id in a cluster; missing on a machine of its own. Has mode
        0700."""
        return self.path / "cluster"

    @property
    def node_id(self) -> Path:
        """Holds the node's id in the cluster."""
        return self.cluster / "node-id"

    @property
    def node_addresses(self) -> Path:
        """Holds where the node listens for the others; only a machine of a cluster has it."""
        return self.cluster / "addresses.json"

    @property
    def docker_id(self) -> Path:
        """Names the home on its containers of the Docker Engine."""
        return self.path / "docker-id"

    @property
    def own(self) -> tuple[Path, ...]:
        """Everything that Sagehen keeps in the home, which may also hold the user's own files."""
        state = self.path.glob("state.db-*")
        return (*self.hidden, *state, *self.folders, self.clients, self.path / RESTORING)

    @property
    def folders(self) -> tuple[Path, ...]:
        return (
            self.objects,
            self.artifacts,
            # Made here too: containers may see the home read-only.
            self.environments,
            self.offline_results,
            self.instances,
            self.jobs,
            self.ended_jobs,
            self.logs,
            self.run,
        )

    @property
    def message_key(self) -> Path:
        """Has mode 0600, with its certificate."""
        return self.path / "message-key.pem"


def prepare_home(path: Path) -> Home:
    """Makes the home's folders, private to this user.

    Raises:
        HomeError: not a writable folder, writable by everybody, or too long for sockets.
    """
    if len(os.fsencode(path)) > _LONGEST_HOME_BYTES:
        raise HomeError(
            f"The path of the home {path} has {len(os.fsencode(path))} bytes; Unix sockets in it "
            f"allow at most {_LONGEST_HOME_BYTES}. Choose a shorter one with --home."
        )
    home = Home(path)
    try:
        make_folder(path)
        _make_private(home)
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
    """Makes new files private, also those of child processes; yields the previous umask."""
    before = os.umask(_PRIVATE_MASK)
    try:
        yield before
    finally:
        os.umask(before)


def _make_private(home: Home) -> None:
    """Makes the home private if it contains nothing else. Raises HomeError if everybody may write
    there."""
    mode = home.path.stat().st_mode
    if mode & stat.S_ISVTX or home.path == Path("/"):
        raise HomeError(
            f"{home.path} is a folder that all users may write to. Choose a folder of the "
            "server's own with --home or SAGEHEN_HOME."
        )
    if not mode & 0o077:
        return
    if _has_nothing_else(home):
        try:
            home.path.chmod(0o700)
            return
        except OSError:
            pass
    log.warning(
        "Other users can list the home %s: it belongs to another user, or contains files that are "
        "not Sagehen's. The files that Sagehen writes there are private. To close the folder as "
        "well: chmod 700 %s",
        home.path,
        home.path,
    )


def _has_nothing_else(home: Home) -> bool:
    """Returns whether a server has run here, or nothing foreign is here."""
    names = {path.name for path in home.path.iterdir()}
    known_names = {path.name for path in (*home.hidden, *home.folders)}
    return home.credentials.name in names or names <= known_names


def lock_id(home: Home) -> tuple[int, int] | None:
    """Identifies the file that `locked` holds: another one at its path, or None, means that the
    home was deleted. Raises OSError, as for a disk that does not answer now."""
    try:
        status = home.lock.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def lock_holder(home: Home) -> int | None:
    """Returns the process that holds the lock of `locked`; None where there is none, or it cannot
    be seen from here. Trying the lock instead could refuse it to a server that starts just then."""
    with suppress(OSError):
        held = lock_id(home)
        if held is None:
            return None
        file = f"{os.major(held[0]):02x}:{os.minor(held[0]):02x}:{held[1]}"
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1:2] == ["FLOCK"] and fields[3:4] == ["WRITE"] and fields[5:6] == [file]:
                return int(fields[4])
    return None


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Locks the home; the kernel unlocks it when this process ends. Raises HomeError."""
    with home.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise HomeError(
                f"The home {home.path} is in use by the server with process id "
                f"{file.read().strip() or '?'}. Stop that one: sagehen stop --home {home.path}. "
                "Or choose another home with --home."
            ) from None
        # Left by a killed server. Who holds the lock without an address gets no signals.
        home.address.unlink(missing_ok=True)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
