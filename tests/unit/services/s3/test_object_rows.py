"""The SQL of the object store, with either database."""

from typing import Any

import pytest

from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.records import Upload
from sagehen.state.database import Database


@pytest.fixture
def upload(any_database: Database) -> Upload:
    upload = Upload(upload_id="b", bucket="models", key="k", started_at=1.0)
    with any_database.write() as connection:
        rows.insert_upload(connection, upload)
    return upload


def test_a_nul_is_no_part_of_any_upload_id(any_database: Database, upload: Upload) -> None:
    """PostgreSQL rejects text with a NUL."""

    def ids(*after: str) -> list[Any]:
        with any_database.read() as connection:
            return [one.upload_id for one in rows.list_uploads(connection, "models", "", after, 9)]

    with any_database.read() as connection:
        assert rows.find_upload(connection, "b") == upload
        assert rows.find_upload(connection, "b\0") is None
    assert ids("k", "\0") == ids("k", "a\0b") == ["b"]
    assert ids("k", "b\0") == ids("k", "b") == ids("k", "") == []
