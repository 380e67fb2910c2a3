"""Backups of a state in PostgreSQL."""

import shutil
from pathlib import Path

import pytest

from sagehen.app.backup import restore_backup, take_backup
from sagehen.base.errors import BackupError
from sagehen.placement import store
from sagehen.state import leader_row
from sagehen.state.database import Database
from support.backups import LARGE, check, opened, put
from support.node_agents import node_record
from support.state import settings_of


def test_a_state_in_postgresql(short_path: Path, postgres_url: str) -> None:
    if shutil.which("pg_dump") is None:
        pytest.skip("PostgreSQL's client programs are not installed")
    urls = []
    database = Database(postgres_url)
    with database.engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        for name in ("backed_up", "brought_back"):
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
            urls.append(postgres_url.replace("/postgres?", f"/{name}?"))
    database.close()
    home, target, new = (short_path / name for name in ("home", "backup", "new"))
    with opened(home, database_url=urls[0]) as objects:
        objects.create_bucket("bucket")
        for key, data in {**LARGE, "small": b"in a row"}.items():
            put(objects, key, data)
        led = Database(urls[0])
        with led.write() as connection:
            assert leader_row.take(connection, "h", "s", 60, is_heir=False, wait_seconds=1) == 1
            store.put(connection, node_record("a"))
            store.authority_of(connection, "certificate")
        led.close()
        made = take_backup(settings_of(home, database_url=urls[0]), target)
        assert (made.state, made.objects) == ("postgresql", 5)
        objects.delete("bucket", ["k0"])
    with pytest.raises(BackupError, match="postgresql's"):
        restore_backup(settings_of(new), target)
    with pytest.raises(BackupError, match="has tables"):
        restore_backup(settings_of(new, database_url=urls[0]), target)
    restore_backup(settings_of(new, database_url=urls[1]), target)
    check(new, database_url=urls[1])
    restored = Database(urls[1])
    with restored.read() as connection:
        look = leader_row.look_at(connection)
        # Its nodes may be those of a cluster that still runs.
        assert store.list_nodes(connection) == []
    with restored.write() as connection:
        assert store.authority_of(connection, "another") == "another"
    restored.close()
    assert look is not None
    assert (look.holder, look.epoch, look.seconds < 0) == ("", 1_000_001, True)


def test_postgresql_without_its_programs_is_refused_by_name(
    home: Path, target: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackupError, match="pg_dump is not installed"):
        take_backup(settings_of(home, database_url=postgres_url), target)
