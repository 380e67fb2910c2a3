"""What a state of before has of transform jobs is kept, as rows."""

import json

from sqlalchemy import text

from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.state import migrate
from sagehen.state.database import Database
from support.earlier_state import upgrade_to

NUMBERS = [
    "failed_objects",
    "objects",
    "objects_known",
    "is_listed",
    "records",
    "done_records",
    "failed_records",
    "input_bytes",
    "input_bytes_known",
    "updated_at",
]


def insert(database: Database, job_id: str, **values: object) -> None:
    columns = {**values, "job_id": job_id, "uploads": "[]"}
    names = [*columns, *NUMBERS]
    places = [f":{name}" for name in columns]
    places += ["false" if name == "is_listed" else "0" for name in NUMBERS]
    statement = f"INSERT INTO transform_progress ({', '.join(names)}) VALUES ({', '.join(places)})"
    with database.write() as connection:
        connection.execute(text(statement), columns)


def check(url: str) -> None:
    database = Database(url)
    upgrade_to("0011", database)
    keys = {"done": json.dumps(["in/d", "in/é"]), "failed": json.dumps(["in/a", "in/d"])}
    insert(database, "some", done_through='in/"b', **keys)
    insert(database, "new", done_through=None, done="[]", failed="[]")
    migrate.upgrade(url)
    with database.read() as connection:
        progress = transform_jobs.progress_of(connection, ["some", "new"])
        assert progress["some"].done_through == 'in/"b'
        assert progress["new"].done_through is None
        found = transform_jobs.finished_objects(connection, "some")
        assert found == {"in/a": True, "in/d": True, "in/é": False}
        assert transform_jobs.finished_objects(connection, "new") == {}
    database.close()


def test_lists_of_keys_become_rows(tmp_path) -> None:
    check(f"sqlite:///{tmp_path}/state.db")


def test_they_do_in_postgresql(postgres_url) -> None:
    database = Database(postgres_url)
    with database.write() as connection:
        connection.execute(text("CREATE SCHEMA transform_migration"))
    database.close()
    check(f"{postgres_url}&options=-csearch_path%3Dtransform_migration")
