"""The route table and its file."""

from pathlib import Path

import msgspec
import pytest

from sagehen.frame.routes import (
    ContainerAddress,
    InstanceRoute,
    Route,
    RouteFileReader,
    RouteTable,
    VariantRoute,
)
from support.clock import HandClock

INSTANCE = InstanceRoute(
    instance_id="i-1",
    address="unix:/s",
    inflight_column=3,
    containers=(ContainerAddress(address="unix:/c", inflight_column=4),),
)


def table(version: int) -> RouteTable:
    variant = VariantRoute(name="v", weight=1, instances=(INSTANCE,))
    return RouteTable(routes={"e": Route(endpoint_name="e", variants=(variant,))}, version=version)


def write(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "routes.json"


def test_the_table_travels_as_json(file: Path) -> None:
    write(file, msgspec.json.encode(table(1)))
    reader = RouteFileReader(file, HandClock())
    assert reader.refresh()
    assert reader.table == table(1)


def test_columns_keep_their_name_in_the_file() -> None:
    encoded = msgspec.json.decode(msgspec.json.encode(INSTANCE))
    assert encoded["board_column"] == 3
    assert encoded["containers"][0]["board_column"] == 4


def test_a_file_is_looked_at_again_only_after_a_while(file: Path) -> None:
    clock = HandClock()
    reader = RouteFileReader(file, clock)
    assert not reader.refresh_if_old()
    write(file, msgspec.json.encode(table(1)))
    assert not reader.refresh_if_old()
    clock.seconds += 1
    assert reader.refresh_if_old()
    clock.seconds += 1
    assert not reader.refresh_if_old()


def test_the_last_table_stays_while_the_file_is_broken_or_gone(file: Path, caplog) -> None:
    reader = RouteFileReader(file, HandClock())
    assert not reader.refresh()
    assert not reader.is_read
    write(file, msgspec.json.encode(table(1)))
    reader.refresh()
    write(file, b"{")
    assert [reader.refresh(), reader.refresh()] == [False, False]
    assert len(caplog.records) == 1
    file.unlink()
    assert not reader.refresh()
    assert reader.table.version == 1
    write(file, msgspec.json.encode(table(2)))
    assert reader.refresh()
    assert reader.table.version == 2
