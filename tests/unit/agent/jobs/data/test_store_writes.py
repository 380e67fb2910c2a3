"""Objects that appear whole or not at all, and files that are still being written."""

import os
from pathlib import Path

import pytest

from sagehen.agent.jobs.data.store_writes import (
    MAX_KEY_BYTES,
    check_key,
    is_being_written,
    is_only_appended_to,
    put_stream,
    resolve,
)
from sagehen.agent.jobs.failures import JobFailed
from sagehen.frame.s3_locations import Location
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.records import ListingQuery

TARGET = Location("bucket", "out/model")


def keys(objects: ObjectStore) -> list[str]:
    return [info.key for info in objects.list_page("bucket", ListingQuery()).objects]


def interrupted_put(objects: ObjectStore) -> None:
    with put_stream(objects, TARGET, lambda: None) as file:
        file.write(b"half")
        raise OSError("away")


def test_an_object_is_there_once_its_file_is_complete(objects: ObjectStore) -> None:
    with put_stream(objects, TARGET, lambda: None) as file:
        file.write(b"whole")
        assert keys(objects) == []
    with objects.open("bucket", "out/model") as opened:
        assert b"".join(opened.chunks()) == b"whole"


def test_what_raises_leaves_no_object(objects: ObjectStore) -> None:
    with pytest.raises(OSError, match="away"):
        interrupted_put(objects)
    assert keys(objects) == []


def test_a_missing_bucket_is_the_jobs_fault(objects: ObjectStore) -> None:
    target = put_stream(objects, Location("none", "a"), lambda: None)
    with pytest.raises(JobFailed, match="specified bucket does not exist"), target as file:
        file.write(b"data")


@pytest.mark.parametrize("key", ["a\ud800", "a" * (MAX_KEY_BYTES + 1), "é" * MAX_KEY_BYTES])
def test_a_key_that_no_store_takes_fails_the_job(key: str) -> None:
    check_key(Location("bucket", "a" * MAX_KEY_BYTES))
    with pytest.raises(JobFailed, match="ClientError: Artifact upload failed"):
        check_key(Location("bucket", key))


def test_links_to_opt_ml_are_followed_in_the_containers_folder(tmp_path: Path) -> None:
    base = tmp_path / "ml"
    (base / "model").mkdir(parents=True)
    (base / "model" / "weights").touch()
    link, relative, broken = (base / name for name in ("link", "relative", "broken"))
    link.symlink_to("/opt/ml/model/weights")
    relative.symlink_to("model/weights")
    broken.symlink_to("/opt/ml/model/none")
    expected = os.path.realpath(base / "model" / "weights")
    assert [resolve(path, base) for path in (link, relative, broken)] == [expected, expected, None]


def test_a_file_is_being_written_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with path.open("wb"):
        assert is_being_written(path)
        assert not is_only_appended_to(path)
    assert not is_being_written(path)
    with path.open("ab"):
        assert is_being_written(path)
        assert is_only_appended_to(path)
        with path.open("r+b"):
            assert not is_only_appended_to(path), "another writer may change its beginning"
    assert not is_only_appended_to(path), "there is no writer"
    assert not is_being_written(tmp_path / "missing")
    assert not is_only_appended_to(tmp_path / "missing")
