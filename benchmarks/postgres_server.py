"""A PostgreSQL server for a while, as its package comes."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sides import Failed, process, wait_for

PROGRAMS = Path("/usr/lib/postgresql")
USER = "postgres"
"""Its package brings it; as root, PostgreSQL refuses to run."""


@contextmanager
def postgres() -> Iterator[str]:
    """SQLAlchemy's URL of an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-pg-"))
    try:
        initdb, server = (str(program(name)) for name in ("initdb", "postgres"))
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        data, as_user = folder / "data", as_other_user()
        make = [*as_user, initdb, "-D", str(data), "-U", "sagehen", "-A", "trust"]
        subprocess.run(make, cwd=folder, check=True, capture_output=True)
        command = [*as_user, server, "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
        with process(command, folder / "log.txt", folder) as running:
            ready = [*as_user, str(program("pg_isready")), "-q", "-h", str(folder)]
            wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, running)
            yield f"postgresql://sagehen@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def program(name: str) -> Path:
    path = next(PROGRAMS.glob(f"*/bin/{name}"), None) or shutil.which(name)
    if not path:
        raise Failed(f"{name} is missing. To have it: apt-get install -y postgresql")
    if importlib.util.find_spec("psycopg") is None:
        raise Failed("psycopg is missing. To have it: pip install 'psycopg[binary]'")
    return Path(path)


def as_other_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise Failed(f"PostgreSQL does not run as root, and there is no user {USER}.") from None
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
