"""The in-flight table: what several gateways count together, even if one is killed."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.routes import INFLIGHT_COLUMNS
from sagehen.gateway.routing.inflight import (
    ROW_BYTES,
    InflightSums,
    clear_row,
    create_inflight_table,
    open_inflight_table,
)

ROWS, COLUMNS = 3, (0, 7, INFLIGHT_COLUMNS - 1)
row = st.integers(0, ROWS - 1)
column = st.sampled_from(COLUMNS)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("take"), row, column),
        st.tuples(st.just("give"), row, column),
        st.tuples(st.just("kill"), row, st.none()),
        st.tuples(st.just("restart"), row, st.none()),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(happenings)
def test_all_see_the_sum_and_never_less_than_nothing(happened):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "board"
        create_inflight_table(path, ROWS)
        tables = [open_inflight_table(path, number) for number in range(ROWS)]
        working: list[Counter[int]] = [Counter() for _ in range(ROWS)]
        for what, at, where in happened:
            if what == "take":
                tables[at].increment(where)
                working[at][where] += 1
            elif what == "give" and working[at][where]:
                tables[at].decrement(where)
                working[at][where] -= 1
            elif what == "kill":
                working[at].clear()
                clear_row(path, at)
            elif what == "restart":
                working[at].clear()
                tables[at] = open_inflight_table(path, at)
            for each in COLUMNS:
                expected = sum(counts[each] for counts in working)
                assert {table.outstanding(each) for table in tables} == {expected}
                assert InflightSums(path).outstanding(each) == expected


def test_without_a_table_there_are_no_requests(tmp_path):
    sums = InflightSums(tmp_path / "board")
    assert sums.outstanding(3) == 0
    create_inflight_table(tmp_path / "board", 2)
    open_inflight_table(tmp_path / "board", 1).increment(3)
    assert sums.outstanding(3) == 1


def test_a_new_server_begins_with_an_empty_table(tmp_path):
    create_inflight_table(tmp_path / "board", 2)
    old = open_inflight_table(tmp_path / "board", 1)
    old.increment(5)
    create_inflight_table(tmp_path / "board", 4)
    old.increment(5)
    assert open_inflight_table(tmp_path / "board", 3).outstanding(5) == 0


GATEWAY = """
import random, sys
from pathlib import Path
from sagehen.gateway.routing.inflight import open_inflight_table

row, columns = int(sys.argv[2]), [int(one) for one in sys.argv[3:]]
table, rng, held = open_inflight_table(Path(sys.argv[1]), row), random.Random(row), []
for number in range(10**7):
    if len(held) > 1 and rng.random() < len(held) / 20:
        table.decrement(held.pop(rng.randrange(len(held))))
    else:
        held.append(rng.choice(columns))
        table.increment(held[-1])
    table.publish_oldest_waiter(columns[0], number)
    if number == 1000:
        print("busy", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """`start(row)`: a process that counts in the table as a gateway does, and does so already."""
    create_inflight_table(tmp_path / "board", ROWS + 1)
    started: list[subprocess.Popen] = []

    def make(row: int) -> subprocess.Popen:
        arguments = [sys.executable, "-c", GATEWAY, tmp_path / "board", str(row)]
        process = subprocess.Popen([*arguments, *map(str, COLUMNS)], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"busy\n"
        return process

    yield make
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_killed_processes_held_is_given_back(start, tmp_path):
    """Real ones, killed as they count; the supervisor then clears their rows."""
    path = tmp_path / "board"
    onlooker = open_inflight_table(path, ROWS)

    def outstanding() -> list[int]:
        return [onlooker.outstanding(column) for column in COLUMNS]

    gateways = {number: start(number) for number in range(ROWS)}
    for victim in (1, 0, 1, 2):
        gateways[victim].kill()
        gateways[victim].wait()
        assert sum(cells_of(path, victim)) > 0
        clear_row(path, victim)
        for _ in range(300):
            assert min(outstanding()) >= 0
        assert sum(outstanding()) > 0
        gateways[victim] = start(victim)
    for number, process in gateways.items():
        process.kill()
        process.wait()
        clear_row(path, number)
    assert outstanding() == [0] * len(COLUMNS)
    assert onlooker.oldest_waiter_elsewhere(COLUMNS[0]) is None


def cells_of(path: Path, row: int) -> memoryview:
    return memoryview(path.read_bytes()[row * ROW_BYTES :][:ROW_BYTES]).cast("q")
