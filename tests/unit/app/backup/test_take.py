"""Backups of homes in use, and homes that cannot be backed up."""

import errno
import os
import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from sagehen.app.backup import restore_backup, take_backup
from sagehen.app.backup import take as taking
from sagehen.app.cluster import NodeAddresses
from sagehen.base.errors import BackupError, StateError
from sagehen.base.home import Home
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.state import pairing as removals
from sagehen.state.pairing import may_remove, removals_held_off
from support.backups import LARGE, check, contents, opened, put
from support.state import settings_of


def test_what_is_missing_in_the_home_is_said(home: Path, target: Path) -> None:
    blob = next((home / "objects/blobs").glob("*/*"))
    blob.unlink()
    with pytest.raises(BackupError, match=blob.name):
        take_backup(settings_of(home), target)
    assert not target.exists()
    shutil.rmtree(target.with_name("backup.partial"))
    made = take_backup(settings_of(home), target, allow_missing=True)
    assert (made.objects, made.missing) == (4, (blob.name,))


def test_a_damaged_state_is_not_backed_up(home: Path, target: Path) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(4096 * 5))
    with pytest.raises(StateError, match="damaged"):
        take_backup(settings_of(home), target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left"), "No space left"),
        (OSError(errno.ENOSPC, "No space left", "/f"), r"No space left \(/f\)"),
    ],
)
def test_a_disk_error_is_said_with_its_file_if_it_has_one(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(taking, "_take", fail)
    with pytest.raises(BackupError, match=f"cannot be written: {reason}. The partial backup is in"):
        take_backup(settings_of(home), target)


def test_a_node_without_a_control_has_nothing_to_back_up(home: Path, target: Path) -> None:
    place = Home(home)
    place.cluster.mkdir()
    addresses = NodeAddresses(node_id="a", agent="h:1", peer="h:2", gateway="h:3", control="h:4")
    file = place.cluster / "addresses.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(addresses, control="")))
    with pytest.raises(BackupError, match="node without a control"):
        take_backup(settings_of(home), target)
    file.write_bytes(msgspec.json.encode(addresses))
    take_backup(settings_of(home), target)


def test_where_a_backup_cannot_be(home: Path, target: Path) -> None:
    for place in (home / "backup", home):
        with pytest.raises(BackupError, match="in the home"):
            take_backup(settings_of(home), place)
    target.mkdir()
    (target / "x").touch()
    with pytest.raises(BackupError, match="exists already"):
        take_backup(settings_of(home), target)
    with pytest.raises(BackupError, match="no server has run there"):
        take_backup(settings_of(home.parent / "none"), target.with_name("other"))
    target.with_name("broken.partial").mkdir()
    with pytest.raises(BackupError, match="one was interrupted"):
        take_backup(settings_of(home), target.with_name("broken"))


def test_files_removed_meanwhile_are_kept_until_the_backup_is_made(home: Path) -> None:
    before = {path.name for path in (home / "objects/blobs").glob("*/*")}
    with opened(home) as objects:
        with removals_held_off(home / "objects"):
            objects.delete("bucket", ["k0"])
            put(objects, "k1", b"small now")
        assert len(list((home / "objects/trash").iterdir())) == 2
        objects.delete("bucket", ["k2"])
        assert len(list((home / "objects/trash").iterdir())) == 2
    left = (home / "objects").rglob("*")
    assert len(before - {path.name for path in left}) == 1


def test_what_is_removed_after_the_snapshot_is_in_the_backup(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = taking._bring_blobs
    removed = []

    def bring_late(*given: object) -> object:
        with opened(home) as objects:
            objects.delete("bucket", ["k0", "k1", "k2", "small"])
            put(objects, "k3", b"another" * 9999)
        removed.append(True)
        return bring(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(taking, "_bring_blobs", bring_late)
    take_backup(settings_of(home), target)
    assert removed
    new = home.parent / "new"
    restore_backup(settings_of(new), target)
    check(new)


def test_under_load_every_backup_is_whole(home: Path) -> None:
    """Each object says its key and version, over and over: what is torn would show."""
    settings = settings_of(home)
    stop = threading.Event()
    faults: list[BaseException] = []

    def write(objects: ObjectStore, worker: int) -> None:
        version = 0
        try:
            while not stop.is_set():
                version += 1
                key = f"w{worker}-{version % 5}"
                put(objects, key, f"{key} {version}\n".encode() * 3000)
                if version % 7 == 0:
                    objects.delete("bucket", [f"w{worker}-{(version + 2) % 5}"])
        except BaseException as error:
            faults.append(error)

    with opened(home) as objects:
        writers = [threading.Thread(target=write, args=(objects, one)) for one in range(3)]
        for one in writers:
            one.start()
        backups = []
        for number in range(5):
            target = home.parent / f"b{number}"
            take_backup(settings, target)
            backups.append(target)
        stop.set()
        for one in writers:
            one.join()
    assert faults == []
    for number, target in enumerate(backups):
        new = home.parent / f"n{number}"
        restore_backup(settings_of(new), target)
        with opened(new) as objects:
            found = contents(objects)
        for key, data in LARGE.items():
            assert found.pop(key) == data
        assert found.pop("small") == b"in a row"
        for key, data in found.items():
            line = data.splitlines()[0]
            assert line.startswith(key.encode() + b" ")
            assert data == (line + b"\n") * 3000


def test_a_state_of_another_name_in_the_home_is_not_copied_twice(home: Path, target: Path) -> None:
    for end in ("", "-wal", "-shm"):
        if (home / f"state.db{end}").exists():
            (home / f"state.db{end}").rename(home / f"own.db{end}")
    url = f"sqlite:///{home / 'own.db'}"
    for name in ("own.db-wal", "own.db-shm", "own.db-lease-events"):
        (home / name).touch()
    (home / "own.db.notes").write_text("the user's")
    take_backup(settings_of(home, database_url=url), target)
    copied = {path.name for path in (target / "home").iterdir()}
    assert not {name for name in copied if name == "own.db" or name.startswith("own.db-")}
    assert {"own.db.notes", "sagehen.toml", "token"} <= copied


def test_parts_in_other_homes_do_not_hinder_a_backup(home: Path, target: Path) -> None:
    """Where objects are in another S3, several homes share a state."""
    with opened(home) as objects:
        upload = objects.uploads.create("bucket", "part", Attributes())
        part = objects.draft()
        part.write(b"p" * 20_000)
        objects.uploads.put_part(upload, 1, part)
    blob = next((home / "objects/blobs").glob("*/*"))
    blob.unlink()
    made = take_backup(settings_of(home, object_store_url="memory:///"), target)
    assert (made.objects, made.missing) == (5, (blob.name,))


def test_deletes_without_end_do_not_hold_up_a_backup_for_ever(home: Path) -> None:
    with (
        may_remove(home / "objects") as may,
        pytest.raises(BackupError, match="being removed"),
        removals_held_off(home / "objects", wait_seconds=0.1),
    ):
        pass
    assert may


def test_a_backup_that_did_not_begin_leaves_nothing(
    home: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_WAIT_SECONDS", 0.1)
    with may_remove(home / "objects"), pytest.raises(BackupError, match="Try again"):
        take_backup(settings_of(home), target)
    take_backup(settings_of(home), target)
