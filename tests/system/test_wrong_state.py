"""Starts with a state that is not that of the home's objects: no file of an object is lost."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.earlier_state import make_earlier
from support.server import SAGEHEN, Server, clean_environment, eventually

LARGE = {f"large-{number}": os.urandom(20_000 + number) for number in range(6)}
SMALL = {f"small-{number}": os.urandom(100) for number in range(3)}
SETTINGS = {"SAGEHEN_OBJECT_GRACE_SECONDS": "0"}
"""Whatever a sweep would take, it takes at once."""


@pytest.fixture(scope="module")
def home_of() -> Iterator[Path]:
    """A home with objects, whose server has ended."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    server = Server(folder / "home", SETTINGS)
    server.start()
    try:
        s3 = server.client("s3")
        s3.create_bucket(Bucket="bucket")
        for key, data in {**LARGE, **SMALL}.items():
            s3.put_object(Bucket="bucket", Key=key, Body=data)
    finally:
        server.stop()
    yield server.home
    shutil.rmtree(folder)


@pytest.fixture
def home(home_of: Path, short_path: Path) -> Path:
    """A copy of it, for the test alone."""
    sockets = shutil.ignore_patterns("*.sock")
    return Path(shutil.copytree(home_of, short_path / "home", ignore=sockets))


def object_files(home: Path) -> set[str]:
    """The objects' files, those in the trash too."""
    return {
        path.name
        for path in (home / "objects").rglob("*")
        if path.is_file() and path.stat().st_size >= 20_000
    }


def refusal(home: Path, **settings: str) -> str:
    """What `sagehen up` says before it ends with 1."""
    done = subprocess.run(
        [SAGEHEN, "up", "--home", str(home), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment() | SETTINGS | settings,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def check_objects(server: Server) -> None:
    s3 = server.client("s3")
    for key, data in {**LARGE, **SMALL}.items():
        assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == data


def run(home: Path, check: Callable[[Server], None], **settings: str) -> None:
    server = Server(home, SETTINGS | settings)
    server.start()
    try:
        check(server)
    finally:
        server.stop()


def lose(home: Path) -> None:
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)


def damage(home: Path) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(4096 * 5))


@pytest.mark.parametrize(
    ("spoil", "settings", "said"),
    [
        (lambda home: None, {"SAGEHEN_DATABASE_URL": "sqlite:////{home}/other.db"}, "is empty"),
        (lose, {}, "is empty"),
        (damage, {}, "is damaged"),
    ],
    ids=["another URL", "lost", "damaged"],
)
def test_a_start_is_refused_and_nothing_changed(
    home: Path, spoil: Callable[[Path], None], settings: dict[str, str], said: str
) -> None:
    before = object_files(home)
    assert len(before) == len(LARGE)
    spoil(home)
    told = refusal(home, **{name: one.format(home=home) for name, one in settings.items()})
    assert said in told
    assert "sagehen restore" in told
    assert "Traceback" not in told
    assert not (home / "other.db").exists()
    assert object_files(home) == before


def test_an_older_state_throws_nothing_away_for_good(home: Path) -> None:
    older = (home / "state.db").read_bytes()
    fresh = {f"new-{number}": os.urandom(30_000) for number in range(3)}

    def write_more(server: Server) -> None:
        for key, data in fresh.items():
            server.client("s3").put_object(Bucket="bucket", Key=key, Body=data)

    run(home, write_more)
    newer, files = (home / "state.db").read_bytes(), object_files(home)
    assert len(files) == len(LARGE) + 3

    def swept(server: Server) -> None:
        eventually(lambda: len(list((home / "objects/trash").iterdir())) == 3)
        check_objects(server)
        assert b"sagehen_object_files_thrown_away_total 3.0" in server.get("/_sagehen/metrics")

    (home / "state.db").write_bytes(older)
    run(home, swept)
    assert object_files(home) == files

    def all_is_back(server: Server) -> None:
        check_objects(server)
        for key, data in fresh.items():
            found = server.client("s3").get_object(Bucket="bucket", Key=key)
            assert found["Body"].read() == data

    lose(home)
    (home / "state.db").write_bytes(newer)
    run(home, all_is_back)
    assert list((home / "objects/trash").iterdir()) == []


def test_a_home_of_an_earlier_version_opens_and_gets_its_id(home: Path) -> None:
    make_earlier(home / "state.db", "0008")
    (home / "objects/blobs/id").unlink()
    (home / "objects/trash").rmdir()
    run(home, check_objects)
    own = (home / "objects/blobs/id").read_text().strip()
    with closing(sqlite3.connect(home / "state.db")) as state:
        assert state.execute("SELECT state_id FROM state_identity").fetchall() == [(own,)]
