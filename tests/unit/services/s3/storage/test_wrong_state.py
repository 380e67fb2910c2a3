"""Fifty ways to start with a state that is wrong, empty, old or damaged: no object's file is lost.

Each start goes as far as a server's: the home, the state, the pair, the files that are taken back
from the trash, a sweep that leaves no time to a new file. Only what the state knows may be told
from what it does not: nothing may go.
"""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sagehen.base.errors import SagehenError, StateError
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.state.database import Database
from sagehen.state.pairing import folder_id, pair
from support.cli import run_command
from support.spoiled_homes import (
    LATER,
    OBJECTS,
    REFUSED,
    STARTED,
    Homes,
    files,
    fill,
    make_legacy,
    put_state,
    remove_state,
    replace_some,
    start,
)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mine`, `older` (the same, before more was written), `other` and `legacy` homes."""
    folder = tmp_path_factory.mktemp("h")
    start(folder / "mine", fill)
    shutil.copytree(folder / "mine", folder / "older")
    start(folder / "mine", replace_some)
    start(folder / "other", fill)
    shutil.copytree(folder / "mine", folder / "legacy")
    make_legacy(folder / "legacy")
    return folder


@pytest.fixture
def homes(templates: Path, short_path: Path) -> Homes:
    return Homes(templates, short_path)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence_and_nothing_changed(homes: Homes, name: str) -> None:
    REFUSED[name](homes)
    before = files(homes.mine)
    with pytest.raises(SagehenError) as refused:
        start(homes.mine)
    assert isinstance(refused.value, StateError)
    assert files(homes.mine) == before
    assert not any((homes.mine / "objects/trash").glob("*"))


@pytest.mark.parametrize("name", STARTED)
def test_it_starts_and_every_file_is_still_there(homes: Homes, name: str) -> None:
    STARTED[name](homes)
    before = files(homes.mine)
    start(homes.mine)
    start(homes.mine)
    assert files(homes.mine) == before


@pytest.mark.parametrize("name", [*REFUSED, *STARTED])
def test_with_the_right_state_all_is_there_again(homes: Homes, templates: Path, name: str) -> None:
    ({**REFUSED, **STARTED})[name](homes)
    had = files(homes.mine)
    with suppress(SagehenError):
        start(homes.mine)
    state = homes.mine / "state.db"
    if state.is_dir():
        state.rmdir()
    put_state(homes.mine, templates / "mine")
    (homes.mine / "objects/blobs").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(templates / "mine/objects/blobs/id", homes.mine / "objects/blobs/id")
    if not had >= files(templates / "mine"):
        return  # What was taken away by hand cannot be there.
    start(homes.mine, check_contents)


def check_contents(objects: ObjectStore) -> None:
    for key, data in {**OBJECTS, **LATER, "small": b"in a row"}.items():
        with objects.open("bucket", key) as found:
            assert b"".join(found.chunks()) == data


@pytest.mark.parametrize("name", ["no state", "the other home's", "no files", "no rows of files"])
def test_what_is_refused_can_be_adopted(homes: Homes, name: str) -> None:
    REFUSED[name](homes)
    before = files(homes.mine)
    refused = run_command("adopt", "--home", homes.mine)
    assert (refused.status, "--yes" in refused.stderr) == (1, True)
    done = run_command("adopt", "--home", homes.mine, "--yes")
    assert done.status == 0, done.stderr
    assert f"does not know: {len(before)};" in done.stdout
    start(homes.mine)
    assert files(homes.mine) == before
    assert len(list((homes.mine / "objects/trash").iterdir())) == len(before)


def test_another_database_url_is_refused_and_no_state_is_made(homes: Homes) -> None:
    other = homes.mine.parent / "typo.db"
    before = files(homes.mine)
    with pytest.raises(StateError, match="is empty"):
        start(homes.mine, database_url=f"sqlite:///{other}")
    with pytest.raises(StateError, match="belong to another state"):
        start(homes.mine, database_url=f"sqlite:///{homes.take('other') / 'state.db'}")
    assert not other.exists()
    assert files(homes.mine) == before
    start(homes.mine, check_contents)


def test_an_empty_postgresql_is_refused(homes: Homes, postgres_url: str) -> None:
    database = Database(postgres_url)
    with database.write() as connection:
        connection.exec_driver_sql("CREATE SCHEMA wrong_state")
    database.close()
    url = f"{postgres_url}&options=-csearch_path%3Dwrong_state"
    before = files(homes.mine)
    with pytest.raises(StateError, match="is empty"):
        start(homes.mine, database_url=url)
    assert files(homes.mine) == before
    new = homes.mine.parent / "with-postgres"
    start(new, fill, database_url=url)
    start(new, replace_some, database_url=url)
    start(new, check_contents, database_url=url)
    with pytest.raises(StateError, match="belong to another state"):
        start(homes.mine, database_url=url)
    with pytest.raises(StateError, match="is empty"):
        start(new)
    assert files(homes.mine) == before
    assert len(files(new)) == len(OBJECTS) + len(LATER) + 1


def test_parts_of_uploads_are_kept_where_objects_are_in_another_s3(homes: Homes) -> None:
    elsewhere = {"object_store_url": "memory:///"}
    remove_state(homes.mine)
    before = files(homes.mine)
    with pytest.raises(StateError, match="is empty"):
        start(homes.mine, **elsewhere)
    assert files(homes.mine) == before
    new = homes.mine.parent / "foreign"
    start(new, fill_upload, **elsewhere)
    assert len(files(new)) == 1
    shutil.rmtree(new / "objects")
    start(new, **elsewhere)  # Objects are elsewhere: a second home may begin with none of its own.


def fill_upload(objects: ObjectStore) -> None:
    objects.create_bucket("bucket")
    upload = objects.uploads.create("bucket", "part", Attributes())
    part = objects.draft()
    part.write(b"p" * 20_000)
    objects.uploads.put_part(upload, 1, part)


def test_two_homes_that_start_at_once_on_one_state_share_its_id(homes: Homes) -> None:
    """Each finds no id, and writes one: what came first holds."""
    url = f"sqlite:///{homes.mine.parent / 'shared.db'}"
    elsewhere = {"database_url": url, "object_store_url": "memory:///"}
    one, two = (homes.mine.parent / name for name in ("one", "two"))
    start(one, **elsewhere)
    with closing(sqlite3.connect(homes.mine.parent / "shared.db")) as state:
        state.execute("DELETE FROM state_identity")
        state.isolation_level = None
        first = "SELECT state_id FROM state_identity"

        def query(sql: str) -> list[tuple[object, ...]]:
            found = state.execute(sql).fetchall()
            if sql == first and not found and not (two / "objects/blobs/id").exists():
                pair(lambda other: state.execute(other).fetchall(), two / "objects")
            return found

        shutil.rmtree(one / "objects")
        pair(query, one / "objects")
    assert folder_id(one / "objects") == folder_id(two / "objects") is not None
    start(one, **elsewhere)
    start(two, **elsewhere)
