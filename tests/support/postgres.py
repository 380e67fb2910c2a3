"""A PostgreSQL server of the tests' own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["postgres_outage", "running_postgres"]

PROGRAMS = [shutil.which("pg_ctl"), *Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")]
PG_CTL = next((Path(program) for program in PROGRAMS if program), None)

# Nothing in it has to outlive the tests.
SETTINGS = "fsync = off\nfull_page_writes = off\n"


def owner() -> str | None:
    """PostgreSQL refuses to run as root; its package brings a user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")


@contextmanager
def running_postgres(host: str = "", network: str = "") -> Iterator[str]:
    """SQLAlchemy's URL of an empty database; skips the test where PostgreSQL is not installed.

    It listens in its own folder, or at `host` for everybody of `network`.
    """
    pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    if PG_CTL is None:
        pytest.skip("PostgreSQL is not installed")
    user = owner()
    folder = Path(tempfile.mkdtemp(prefix="sgh-pg-"))
    if user:
        shutil.chown(folder, user)

    _run(folder, "initdb", "-U", "sagehen", "-A", "trust", "--no-sync")
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write(
            f"unix_socket_directories = '{folder}'\nlisten_addresses = '{host}'\n{SETTINGS}"
        )
    if network:
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")
    _start(folder)
    try:
        yield f"postgresql://sagehen@{host}/postgres" + ("" if host else f"?host={folder}")
    finally:
        _run(folder, "pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(folder)


@contextmanager
def postgres_outage(url: str) -> Iterator[None]:
    """Stops the server with this URL, which listens in its own folder, until the block ends."""
    folder = Path(url.partition("?host=")[2])
    _run(folder, "pg_ctl", "stop", "-m", "immediate")
    try:
        yield
    finally:
        _start(folder)


def _start(folder: Path) -> None:
    _run(folder, "pg_ctl", "start", "-w", "-l", f"{folder}/log")


def _run(folder: Path, program: str, *arguments: str) -> None:
    assert PG_CTL is not None
    command = [str(PG_CTL.with_name(program)), "-D", str(folder / "data"), *arguments]
    subprocess.run(
        command, user=owner(), cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=250
    )
