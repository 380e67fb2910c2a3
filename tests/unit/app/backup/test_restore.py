"""Backups: whole, of one moment, and brought back without anything being lost."""

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sagehen.app.backup import restore as restoring
from sagehen.app.backup import restore_backup, take_backup
from sagehen.base.errors import BackupError, HomeError, StateError
from sagehen.base.home import locked, prepare_home
from sagehen.placement import store
from sagehen.state.database import Database
from sagehen.state.leases import LeaseLock
from support.backups import LARGE, check, contents, opened, put, read
from support.node_agents import node_record
from support.state import settings_of


def test_what_was_backed_up_comes_back(home: Path, target: Path) -> None:
    made = take_backup(settings_of(home), target)
    assert (made.objects, made.missing, made.state) == (5, (), "sqlite")
    assert not target.with_name("backup.partial").exists()
    with opened(home) as objects:
        objects.delete("bucket", ["k0", "k1"])
        put(objects, "k2", b"new" * 9999)
    new = home.parent / "new"
    _, aside = restore_backup(settings_of(new), target)
    assert aside is None
    check(new)
    for name in ("credentials.json", "sagehen.toml", "token"):
        assert (new / name).read_bytes() == (home / name).read_bytes()
    assert [path for path in new.glob("*") if path.stat().st_mode & 0o077] == []
    assert not (new / ".restoring").exists()


def test_a_restored_state_belongs_to_no_cluster(home: Path, target: Path) -> None:
    """Its nodes may be those of a cluster that still runs."""
    database = Database(settings_of(home).state_url)
    with database.write() as connection:
        store.put(connection, node_record("a"))
        store.authority_of(connection, "certificate")
    database.close()
    take_backup(settings_of(home), target)
    new = home.with_name("new")
    restore_backup(settings_of(new), target)
    check(new)
    database = Database(settings_of(new).state_url)
    with database.write() as connection:
        assert store.list_nodes(connection) == []
        assert store.authority_of(connection, "another") == "another"
    database.close()


def test_a_backup_survives_what_happens_to_the_home(home: Path, target: Path) -> None:
    take_backup(settings_of(home), target)
    with opened(home) as objects:
        objects.delete("bucket", [*LARGE, "small"])
    shutil.rmtree(home)
    restore_backup(settings_of(home), target)
    check(home)


def test_on_another_disk_files_are_copied(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", no_link)
    take_backup(settings_of(home), target)
    (copy,) = target.glob(f"blobs/*/{next((home / 'objects/blobs').glob('*/*')).name}")
    assert copy.stat().st_nlink == 1
    shutil.rmtree(home)
    restore_backup(settings_of(home), target)
    check(home)


def test_a_copy_of_a_damaged_file_is_refused(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", no_link)
    blob = next((home / "objects/blobs").glob("*/*"))
    blob.write_bytes(bytes([7]) * blob.stat().st_size)
    with pytest.raises(BackupError, match="is damaged"):
        take_backup(settings_of(home), target)
    assert not target.exists()


def test_a_home_in_use_is_not_restored_over(home: Path, target: Path) -> None:
    take_backup(settings_of(home), target)
    with locked(prepare_home(home)):
        before = sorted(path.name for path in home.rglob("*"))
        with pytest.raises(HomeError, match="in use by the server"):
            restore_backup(settings_of(home), target, replace=True)
    assert sorted(path.name for path in home.rglob("*")) == before


def test_a_state_that_a_server_with_another_home_uses_is_not_moved_aside(
    home: Path, target: Path
) -> None:
    take_backup(settings_of(home), target)
    state = home.parent / "elsewhere.db"
    other = settings_of(home.parent / "other", database_url=f"sqlite:///{state}")
    restore_backup(other, target)
    lease = LeaseLock(state.with_name("elsewhere.db-lease-endpoints"))
    assert lease.take()
    before = state.read_bytes()
    third = settings_of(home.parent / "third", database_url=f"sqlite:///{state}")
    with pytest.raises(HomeError, match=r"elsewhere\.db is in use"):
        restore_backup(third, target, replace=True)
    assert state.read_bytes() == before
    lease.release()
    restore_backup(third, target, replace=True)
    check(home.parent / "third", database_url=f"sqlite:///{state}")


@pytest.mark.parametrize("relative", [True, False])
def test_links_among_the_objects_are_followed_and_not_kept(
    home: Path, target: Path, relative: bool
) -> None:
    kept = home.parent / "large disk"
    kept.mkdir()
    for file in (home / "objects/blobs").glob("*/*"):
        moved = kept / file.name
        file.rename(moved)
        file.symlink_to(Path("../../../..", kept.name, moved.name) if relative else moved)
    take_backup(settings_of(home), target)
    shutil.rmtree(kept)
    shutil.rmtree(home)
    same = home.parent / "deduplicated"
    same.mkdir()
    for file in (target / "blobs").glob("*/*"):
        moved = same / file.name
        file.rename(moved)
        file.symlink_to(moved)
    restore_backup(settings_of(home), target)
    shutil.rmtree(same)
    shutil.rmtree(target)
    check(home)


@pytest.mark.parametrize("moved_aside", [True, False])
def test_no_start_takes_the_place_of_a_restore_that_was_broken_off(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch, moved_aside: bool
) -> None:
    take_backup(settings_of(home), target)
    place = home if moved_aside else home.parent / "new"

    def break_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_put_in_place", break_off)
        with pytest.raises(KeyboardInterrupt):
            restore_backup(settings_of(place), target, replace=moved_aside)
    with pytest.raises(StateError, match="was interrupted"), opened(place):
        pass
    assert not (place / "state.db").exists()
    restore_backup(settings_of(place), target, replace=moved_aside)
    check(place)


def test_a_home_with_something_in_it_is_refused_or_moved_aside(home: Path, target: Path) -> None:
    take_backup(settings_of(home), target)
    with opened(home) as objects:
        put(objects, "later", b"later" * 9999)
        objects.delete("bucket", ["k3"])
    with pytest.raises(HomeError, match="--replace"):
        restore_backup(settings_of(home), target)
    _, aside = restore_backup(settings_of(home), target, replace=True)
    check(home)
    assert aside is not None
    assert aside in prepare_home(home).hidden
    old = home.parent / "old"
    shutil.copytree(aside, old)
    with opened(old) as objects:
        assert read(objects, "later") == b"later" * 9999
        assert "k3" not in contents(objects)
    _, second = restore_backup(settings_of(home), target, replace=True)
    assert second not in (None, aside)
    check(home)


def test_a_log_beside_the_old_state_does_not_reach_the_new_one(home: Path, target: Path) -> None:
    take_backup(settings_of(home), target)
    with closing(sqlite3.connect(home / "state.db")) as state:
        state.execute("INSERT INTO buckets (name, created_at) VALUES ('late', 0)")
        state.commit()
        for end in ("-wal", "-shm"):
            shutil.copyfile(home / f"state.db{end}", home.parent / end)
    for end in ("-wal", "-shm"):
        shutil.copyfile(home.parent / end, home / f"state.db{end}")
    restore_backup(settings_of(home), target, replace=True)
    with opened(home) as objects:
        assert [one.name for one in objects.buckets()] == ["bucket"]


def spoil_state(target: Path) -> None:
    with (target / "state.db").open("r+b") as file:
        file.seek(5000)
        file.write(b"spoiled")


def spoil_blob(target: Path) -> None:
    blob = next((target / "blobs").glob("*/*"))
    blob.chmod(0o600)
    data = bytearray(blob.read_bytes())
    data[100] ^= 1
    blob.unlink()
    blob.write_bytes(data)


def cut_blob(target: Path) -> None:
    blob = next((target / "blobs").glob("*/*"))
    data = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(data[:-1])


def escape(target: Path) -> None:
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["files"]["../../outside"] = manifest["files"]["state.db"]
    (target / "manifest.json").write_text(json.dumps(manifest))


def newer(target: Path) -> None:
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))


def shorten_list(target: Path) -> None:
    lines = (target / "objects.jsonl").read_text().splitlines()
    (target / "objects.jsonl").write_text("\n".join(lines[:-1]) + "\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda target: (target / "manifest.json").unlink(), "not a complete backup"),
        (lambda target: (target / "manifest.json").write_text("{"), "cannot be read"),
        (newer, "format 2"),
        (escape, "outside of the backup"),
        (lambda target: (target / "state.db").unlink(), "state.db is missing"),
        (spoil_state, "state.db does not match"),
        (lambda target: (target / "home/credentials.json").write_text("{}"), "credentials.json"),
        (shorten_list, "objects.jsonl does not match"),
        (lambda target: next((target / "blobs").glob("*/*")).unlink(), "is missing"),
        (spoil_blob, "is damaged"),
        (cut_blob, "does not have the recorded 2000"),
    ],
)
def test_a_backup_that_is_not_whole_changes_nothing(
    home: Path, target: Path, spoil: Callable[[Path], object], said: str
) -> None:
    take_backup(settings_of(home), target)
    spoil(target)
    with pytest.raises(BackupError, match=said):
        restore_backup(settings_of(home), target, replace=True)
    check(home)


def test_a_log_that_lies_alone_is_not_replayed_over_what_came_back(
    home: Path, target: Path
) -> None:
    take_backup(settings_of(home), target)
    own = home.parent / "own.db"
    with closing(sqlite3.connect(home / "state.db")) as state:
        state.execute("INSERT INTO buckets (name, created_at) VALUES ('late', 0)")
        state.commit()
        for end in ("-wal", "-shm"):
            shutil.copyfile(home / f"state.db{end}", f"{own}{end}")
    new = home.parent / "new"
    url = f"sqlite:///{own}"
    restore_backup(settings_of(new, database_url=url), target)
    with opened(new, database_url=url) as objects:
        assert [one.name for one in objects.buckets()] == ["bucket"]


@pytest.fixture
def mounted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home's objects, to which the kernel's rules for a mount point apply."""
    objects = home / "objects"
    rename, rmdir = os.rename, os.rmdir

    def is_below(path: Path | str) -> bool:
        return objects in Path(path).parents

    def checked_rename(source: Path, target: Path) -> None:
        if objects in (Path(source), Path(target)):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(source))
        if is_below(source) != is_below(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        rename(source, target)

    def checked_rmdir(path: Path, **given: Any) -> None:
        if Path(path) == objects:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        rmdir(path, **given)

    monkeypatch.setattr(os, "rename", checked_rename)
    monkeypatch.setattr(os, "rmdir", checked_rmdir)
    return objects


def test_objects_on_a_disk_of_their_own_are_replaced_there(
    home: Path, target: Path, mounted: Path
) -> None:
    take_backup(settings_of(home), target)
    with opened(home) as objects:
        put(objects, "later", b"later" * 9999)
    _, aside = restore_backup(settings_of(home), target, replace=True)
    check(home)
    assert not (mounted / ".restoring").exists()
    assert aside is not None
    old = home.parent / "old"
    shutil.copytree(aside, old)
    with opened(old) as objects:
        assert read(objects, "later") == b"later" * 9999
    restore_backup(settings_of(home), target, replace=True)
    check(home)


def test_an_empty_disk_for_the_objects_is_restored_to(
    home: Path, target: Path, mounted: Path
) -> None:
    take_backup(settings_of(home), target)
    for path in home.iterdir():
        if path != mounted:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in mounted.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (mounted / "lost+found").mkdir()
    restore_backup(settings_of(home), target)
    check(home)


def failing_rename(
    error: int, source: Path | None = None, target: Path | None = None
) -> Callable[[Path, Path], None]:
    """Renames as ever, but for what is at `source` or would get to `target`."""
    rename = os.rename

    def fail(given: Path, wanted: Path) -> None:
        if Path(given) == source or Path(wanted) == target:
            raise OSError(error, os.strerror(error), str(given))
        rename(given, wanted)

    return fail


def test_what_cannot_be_moved_aside_leaves_all_where_it_was(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_backup(settings_of(home), target)
    monkeypatch.setattr(os, "rename", failing_rename(errno.EBUSY, source=home / "token"))
    with pytest.raises(BackupError, match="in their former places"):
        restore_backup(settings_of(home), target, replace=True)
    check(home)
    assert (home / "token").exists()


def test_where_what_was_there_is_now_is_said(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_backup(settings_of(home), target)
    monkeypatch.setattr(os, "rename", failing_rename(errno.EIO, target=home / "state.db"))
    with pytest.raises(BackupError, match="before-restore-"):
        restore_backup(settings_of(home), target, replace=True)
