"""A loss of power at any moment: what was acknowledged is there, though nothing that was not synced
has reached the disk."""

import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.services.s3.storage import open_object_store
from sagehen.services.s3.storage.errors import NoSuchKey
from sagehen.state.database import Database
from support.deploy import Deployer
from support.postgres import running_postgres
from support.power_loss import Disk, build_library, keep_none, keep_some, read_journal
from support.power_loss_load import SIZES, Ledger, Load
from support.server import SAGEHEN, Server, clean_environment

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

POINTS = 200
RESTARTS = 4
"""of the points: a server starts on what is left"""


@contextmanager
def journaled(database_url: str | None = None) -> Iterator[tuple[Server, Ledger]]:
    """A server whose calls are journaled, from its home's first file on."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    ledger = Ledger(folder / "journal")
    ledger.journal.touch()
    home = folder / "home"
    home.mkdir(mode=0o700)
    state = {} if database_url is None else {"SAGEHEN_DATABASE_URL": database_url}
    server = Server(home, preloaded(folder, ledger.journal) | state)
    server.start()
    try:
        yield server, ledger
    finally:
        server.stop()
        shutil.rmtree(folder)


def preloaded(folder: Path, journal: Path) -> dict[str, str]:
    """Variables with which a process journals its calls; `folder` gets the library."""
    return {"LD_PRELOAD": str(build_library(folder)), "POWER_LOSS_JOURNAL": str(journal)}


def text_of(state: Path) -> str:
    """All that the state's rows hold."""
    with sqlite3.connect(state) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        rows = [
            row
            for (table,) in tables.fetchall()
            for row in connection.execute(f'SELECT * FROM "{table}"')
        ]
    connection.close()
    return "\n".join(
        cell.decode("latin-1") if isinstance(cell, bytes) else str(cell)
        for row in rows
        for cell in row
    )


def wrong_objects(home: Path, url: str, allowed: Mapping[str, set[bytes | None]]) -> list[str]:
    """Returns the objects of a home that have another content than one of the allowed."""
    wrong = []
    database = Database(url)
    try:
        store = open_object_store(Settings(home=home), Home(home), database, SYSTEM)
        for key, contents in allowed.items():
            try:
                with store.open("load", key) as file:
                    content: bytes | None = b"".join(file.chunks())
            except NoSuchKey:
                content = None
            except OSError as error:
                wrong.append(f"{key}: {error}")
                continue
            if content not in contents:
                wrong.append(f"{key}: {content and content[:20]!r}")
    finally:
        database.close()
    return wrong


def after_power_losses(home: Path, ledger: Ledger, began: int, left: Path) -> Iterator[int]:
    """Writes what is left to the folder `left`, at each of the points; yields the point."""
    content = ledger.journal.read_bytes()
    chance = random.Random(1)
    disk, at = Disk(home), 0
    for number in range(POINTS):
        # Points in order: those that are left are shared out over the rest of the journal.
        point = began + (len(content) - began) * (number + chance.random()) / POINTS
        for record in read_journal(content, at, int(point)):
            disk.apply(record)
            at = record.end
        disk.write_to(left, keep_some(number) if number % 2 else keep_none)
        yield at
        shutil.rmtree(left)


def test_nothing_acknowledged_is_lost(
    short_path: Path, make_deployer: Callable[..., Deployer]
) -> None:
    left = short_path / "home"
    with journaled() as (server, ledger):
        load = Load(make_deployer(server), ledger)
        began = ledger.now()
        load.run()
        server.kill()
        assert ledger.deleted
        for number, at in enumerate(after_power_losses(server.home, ledger, began, left)):
            text = text_of(left / "state.db")
            assert ledger.lost_at(at, text) == []
            allowed = {key: ledger.allowed(key, at) for key in ledger.objects}
            assert wrong_objects(left, f"sqlite:///{left / 'state.db'}", allowed) == []
            if number % (POINTS // RESTARTS) == 0:
                assert_serves(left, allowed)


def test_files_are_there_when_postgres_names_them(
    short_path: Path, make_deployer: Callable[..., Deployer]
) -> None:
    """PostgreSQL itself loses no power here: its rows are those of the end."""
    left = short_path / "home"
    with running_postgres() as url, journaled(database_url=url) as (server, ledger):
        load = Load(make_deployer(server), ledger)
        began = ledger.now()
        load.run()
        server.kill()
        for at in after_power_losses(server.home, ledger, began, left):
            allowed = {
                key: {writes[0][2]}
                for key, writes in ledger.objects.items()
                if len(writes) == 1 and writes[0][1] <= at
            }
            assert wrong_objects(left, url, allowed) == []
        assert len(allowed) > 30


def test_backups_and_restored_homes_are_whole(tmp_path: Path, short_path: Path) -> None:
    """The power is lost when the command has ended."""
    journal = tmp_path / "journal"
    journal.touch()
    variables = preloaded(tmp_path, journal)
    root = short_path / "disk"
    root.mkdir(mode=0o700)
    disk, at = Disk(root), 0
    server = Server(root / "home", variables)
    objects = {str(size): bytes(size) for size in SIZES}

    def lose_power(left: str) -> Path:
        nonlocal at
        content = journal.read_bytes()
        for record in read_journal(content, at, len(content)):
            disk.apply(record)
            at = record.end
        disk.write_to(short_path / left, keep_none)
        return short_path / left

    def run(*command: str | Path) -> None:
        environment = clean_environment() | variables
        subprocess.run([SAGEHEN, *command], env=environment, check=True, capture_output=True)

    server.start()
    try:
        s3 = server.client("s3")
        s3.create_bucket(Bucket="load")
        for key, content in objects.items():
            s3.put_object(Bucket="load", Key=key, Body=content)
        run("backup", root / "backup", "--home", root / "home")
    finally:
        server.stop()
    allowed: dict[str, set[bytes | None]] = {key: {content} for key, content in objects.items()}
    left = lose_power("left")
    for home in (root / "new", root / "home"):
        run("restore", root / "backup", "--home", home, "--replace")
    run("restore", left / "backup", "--home", short_path / "from-left")
    left = lose_power("left-2")
    (replaced,) = (left / "home").glob("before-restore-*")
    for home in (short_path / "from-left", left / "new", left / "home", replaced):
        assert wrong_objects(home, f"sqlite:///{home / 'state.db'}", allowed) == []


def assert_serves(home: Path, allowed: Mapping[str, set[bytes | None]]) -> None:
    """Starts a server on a home, as after the power has come back."""
    server = Server(home, {})
    server.start()
    try:
        s3 = server.client("s3")
        for key, contents in allowed.items():
            try:
                content: bytes | None = s3.get_object(Bucket="load", Key=key)["Body"].read()
            except s3.exceptions.NoSuchKey:
                content = None
            assert content in contents, key
    finally:
        server.stop()
