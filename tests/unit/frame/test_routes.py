"""The route table and its file."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.frame.routes import (
    ContainerAddress,
    InstanceRoute,
    Route,
    RouteFileReader,
    RouteTable,
    TableText,
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


WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([1.0, 2.0]))
TABLES = st.lists(st.tuples(WEIGHTS, st.sampled_from([{}, {"i-9": (3, 4)}])), max_size=8)


def text(version: int, weights: dict[str, float], leaving: dict[str, tuple[int, ...]]) -> TableText:
    routes = {
        name: Route(
            endpoint_name=name,
            variants=(VariantRoute(name="v", weight=weight, instances=(INSTANCE,)),),
        )
        for name, weight in weights.items()
    }
    table = RouteTable(routes=routes, version=version, leaving=leaving, leader="ä")
    return TableText(msgspec.json.encode(table))


@given(TABLES)
def test_changes_of_a_table_make_the_table(tables) -> None:
    known = None
    for version, (weights, leaving) in enumerate(tables):
        table = text(version, weights, leaving)
        changes = None if known is None else table.changes_since(known)
        after = table if changes is None else known.after(changes)
        decode = msgspec.json.Decoder(RouteTable).decode
        assert decode(after.content) == decode(table.content)
        known = after


def test_the_changes_of_one_endpoint_are_small() -> None:
    names = [f"e{number}" for number in range(1000)]
    before = text(1, dict.fromkeys(names, 1.0), {})
    after = text(2, {**dict.fromkeys(names, 1.0), "e7": 2.0}, {})
    changes = after.changes_since(before)
    assert changes is not None
    assert len(changes) < len(after.content) / 500
    assert after.changes_since(text(0, {}, {})) is None, "the whole one is no longer"
    assert after.changes_since(TableText(b"{")) is None
